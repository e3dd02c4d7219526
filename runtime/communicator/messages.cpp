// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks.
#include <span>
#include <string>
#include <vector>

#include "tutti/communicator.hpp"
#include "tutti/error.hpp"

#include "runtime/communicator/refusals.hpp"
#include "runtime/job/group.hpp"

namespace tutti {

namespace {

/// Throws on this rank only: the other rank is or will be in a call of its own.
void check_message(const Communicator& ranks, const std::string& what,
                   const ConstTensorView& tensor, int other) {
  std::string why = refusal(tensor);
  if (other < 0 || other >= ranks.size()) {
    why = "not a rank; expected 0 to " + std::to_string(ranks.size() - 1);
  } else if (other == ranks.rank()) {
    why = "a rank sends no message to itself; copy the tensor";
  }
  if (!why.empty()) throw Error(ErrorCode::invalid_argument, what + ": " + why);
}

bool is_plain(const Communicator& ranks, const ConstTensorView& tensor, int other) {
  return is_usable(tensor) && other >= 0 && other < ranks.size() && other != ranks.rank();
}

}  // namespace

void Communicator::send(const ConstTensorView& tensor, int to_rank) {
  const auto describe = [&] {
    return "send of " + to_string(tensor) + " to rank " + std::to_string(to_rank);
  };
  if (!is_plain(*this, tensor, to_rank)) check_message(*this, describe(), tensor, to_rank);
  group_->engine().messages().send(to_rank,
                                   {.bytes = const_cast<std::byte*>(tensor.bytes()),  // only read
                                    .count = tensor.count(),
                                    .dtype = tensor.dtype()},
                                   describe);
}

void Communicator::receive(const TensorView& tensor, int from_rank) {
  const auto describe = [&] {
    return "receive of " + to_string(tensor) + " from rank " + std::to_string(from_rank);
  };
  if (!is_plain(*this, tensor, from_rank)) check_message(*this, describe(), tensor, from_rank);
  group_->engine().messages().receive(
      from_rank, {.bytes = tensor.bytes(), .count = tensor.count(), .dtype = tensor.dtype()},
      describe);
}

std::vector<int> Communicator::meet(std::span<const MeetingPartner> partners, int awaited) {
  const auto refuse = [](const std::string& found) {
    throw Error(
        ErrorCode::invalid_argument,
        "meet: expected other ranks of a communicator in one node, in their order; found " + found);
  };
  if (num_nodes() > 1) refuse(std::to_string(num_nodes()) + " nodes");
  if (partners.empty()) refuse("none");
  std::vector<collectives::Partner> all;
  for (const MeetingPartner& one : partners) {
    const int least = all.empty() ? 0 : all.back().rank + 1;
    if (one.rank < least || one.rank >= size() || one.rank == this->rank()) {
      refuse("rank " + std::to_string(one.rank));
    }
    all.push_back({one.rank, one.has_news});
  }
  return group_->engine().messages().meet(all, awaited);
}

}  // namespace tutti
