// SPDX-License-Identifier: Apache-2.0
#include "runtime/communicator/user_reductions.hpp"

#include <cstring>
#include <utility>

#include "tutti/communicator.hpp"
#include "tutti/error.hpp"

#include "collectives/job/tree.hpp"
#include "runtime/base/digest.hpp"
#include "runtime/communicator/refusals.hpp"

namespace tutti {

using collectives::BlockSegments;
using collectives::kEveryRank;
using collectives::Kind;
using collectives::Verb;

namespace {

/// Limit of the bytes of all inputs together. Beyond it, combining everything on every rank takes
/// longer than a second meeting of the ranks.
constexpr std::size_t kMostForAll = 8192;

/// Calls combine(left, right) for every inner node of the canonical tree over blocks first .. first
/// + count - 1, beginning at the leaves. The result is in the first block.
template <class Combine>
void combine_tree(int first, int count, Combine&& combine) {
  if (count == 1) return;
  const int left = collectives::split_point(count);
  combine_tree(first, left, combine);
  combine_tree(first + left, count - left, combine);
  combine(first, first + left);
}

/// Its moves of data are counted as part of it.
class CountedReduction {
 public:
  CountedReduction(collectives::StatisticsCollector& statistics, const char* name,
                   std::size_t bytes)
      : call_(statistics, name) {
    statistics.count_bytes(bytes);
  }

 private:
  collectives::CountedCall call_;
};

}  // namespace

std::vector<std::size_t> UserReductions::shares_of(std::size_t count) const {
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<std::size_t> shares(ranks, count / ranks);
  for (std::size_t rank = 0; rank < count % ranks; ++rank) ++shares[rank];
  return shares;
}

/// Composes the text on demand, because that takes longer than a small call.
std::string UserReductions::Request::what() const {
  return std::string(call) + " (" + op.name + (op.elementwise ? ", elementwise" : "") +
         (op.pure ? ", pure" : "") + ") of " + to_string(input) +
         (verb == Verb::reduce ? " to rank " + std::to_string(root) : "");
}

UserReductions::Request UserReductions::request_for(const char* call, Verb verb,
                                                    const ConstTensorView& input, const UserOp& op,
                                                    const std::string& refusal) {
  std::string why = refusal;
  if (why.empty() && !op.combine) why = "the operation '" + op.name + "' has no function";
  if (!why.empty()) {
    group_->engine().throw_on_all_ranks(ErrorCode::invalid_argument,
                                        std::string(call) + ": " + why);
  }
  Digest digest;
  digest.add(input.shape(), input.dtype()).add(std::string_view(op.name));
  digest.add(std::uint64_t{(op.elementwise ? 1u : 0u) + (op.pure ? 2u : 0u)});
  return {.call = call,
          .input = input,
          .digest = digest.value(),
          .op = op,
          .dtype = input.dtype(),
          .verb = verb};
}

/// Returns scratch memory. A lack of memory on one rank is an error on all.
std::byte* UserReductions::scratch(const Request& request, std::size_t bytes) {
  if (scratch_.size_bytes() >= bytes) return scratch_.bytes();
  try {
    scratch_ = Tensor::empty({0}, DType::uint8);  // releases its memory first
    scratch_ = group_->allocate({static_cast<std::int64_t>(bytes)}, DType::uint8);
  } catch (const Error& error) {
    group_->engine().throw_on_all_ranks(error.code(), request.what() + ": " + error.what());
  }
  return scratch_.bytes();
}

void UserReductions::move(const Request& request, Kind kind, const BlockSegments& segments) {
  const auto describe = [&] { return request.what(); };
  group_->engine().run({.kind = kind,
                        .root = request.root,
                        .digest = request.digest,
                        .segments = segments.all(),
                        .describe = describe,
                        .verb = request.verb});
}

/// Collects the elements that this rank combines, from every rank, in the order of ranks.
std::byte* UserReductions::share_out(const Request& request, const ConstTensorView& input,
                                     const std::vector<std::size_t>& counts) {
  const std::size_t own = counts[static_cast<std::size_t>(rank())] * size_of(request.dtype);
  std::byte* const blocks = scratch(request, own * counts.size());
  BlockSegments segments(rank(), input.bytes(), blocks, request.dtype,
                         counts.size() * counts.size());
  for (int from = 0; from < size(); ++from) {
    for (int to = 0; to < size(); ++to) {
      segments.add(from, to, counts[static_cast<std::size_t>(to)]);
    }
  }
  move(request, Kind::alltoall, segments);
  return blocks;
}

/// Collects the whole inputs on the root, in the order of ranks.
std::byte* UserReductions::collect(const Request& request, const ConstTensorView& input, int root) {
  const auto ranks = static_cast<std::size_t>(size());
  std::byte* const blocks =
      scratch(request, rank() == root ? ranks * input.size_bytes() : std::size_t{0});
  BlockSegments segments(rank(), input.bytes(), blocks, request.dtype, ranks);
  for (int from = 0; from < size(); ++from) segments.add(from, root, input.count());
  move(request, Kind::gather, segments);
  return blocks;
}

/// True if every rank gets all inputs, and combines them for itself.
bool UserReductions::is_for_all(const Request& request) const {
  return request.op.pure &&
         static_cast<std::size_t>(size()) * request.input.size_bytes() <= kMostForAll;
}

/// Combines all inputs on every rank, and writes the result to `output` unless it is null. A pure
/// operation throws on all ranks or on none, so outputs are written on all ranks or on none.
void UserReductions::combine_all(const Request& request, std::byte* output) {
  const std::size_t bytes = request.input.size_bytes();
  std::byte* const blocks = scratch(request, static_cast<std::size_t>(size()) * bytes);
  BlockSegments segments(rank(), request.input.bytes(), blocks, request.dtype,
                         static_cast<std::size_t>(size()));
  for (int from = 0; from < size(); ++from) {
    segments.add(from, kEveryRank, request.input.count());
  }
  move(request, Kind::allgather, segments);
  const Shape flat = {static_cast<std::int64_t>(request.input.count())};
  combine(request, blocks, request.op.elementwise ? flat : request.input.shape());
  if (output != nullptr && bytes > 0) std::memcpy(output, blocks, bytes);
}

/// Combines the blocks. An exception of the operation goes to all ranks in place of the next call.
void UserReductions::combine(const Request& request, std::byte* blocks, const Shape& shape) {
  const std::size_t bytes = shape.count() * size_of(request.dtype);
  if (bytes == 0) return;
  const auto place = [&](int block) { return blocks + static_cast<std::size_t>(block) * bytes; };
  std::string text;
  try {
    return combine_tree(0, size(), [&](int left, int right) {
      request.op.combine(TensorView(place(left), shape, request.dtype),
                         ConstTensorView(place(right), shape, request.dtype));
    });
  } catch (const std::exception& error) {
    text = error.what();
  } catch (...) {
    text = "an exception of unknown type";
  }
  group_->engine().throw_on_all_ranks(ErrorCode::user_code,
                                      request.what() + ": the operation threw: " + text);
}

/// Ends a call that does not end with a data movement: returns once no rank's operation has thrown.
void UserReductions::end(const Request& request) {
  const auto describe = [&] { return request.what(); };
  group_->engine().run({.kind = Kind::barrier,
                        .root = request.root,
                        .digest = request.digest,
                        .segments = {},
                        .describe = describe,
                        .verb = request.verb});
}

void UserReductions::allreduce(const ConstTensorView& input, const TensorView& output,
                               const UserOp& op) {
  const Request request =
      request_for("allreduce", Verb::allreduce, input, op, refusal(input, output));
  const CountedReduction counted(group_->engine().statistics(), "allreduce_user_op",
                                 input.size_bytes());
  if (is_for_all(request)) return combine_all(request, output.bytes());
  std::vector<std::size_t> counts(static_cast<std::size_t>(size()), 0);
  counts.front() = input.count();
  if (op.elementwise) counts = shares_of(input.count());
  std::byte* const blocks =
      op.elementwise ? share_out(request, input, counts) : collect(request, input, 0);
  const auto own = static_cast<std::int64_t>(counts[static_cast<std::size_t>(rank())]);
  if (op.elementwise) {
    combine(request, blocks, {own});
  } else if (rank() == 0) {
    combine(request, blocks, input.shape());
  }
  BlockSegments segments(rank(), blocks, output.bytes(), request.dtype, counts.size());
  for (int from = 0; from < size(); ++from) {
    segments.add(from, kEveryRank, counts[static_cast<std::size_t>(from)]);
  }
  move(request, Kind::allgather, segments);
}

void UserReductions::reduce(const ConstTensorView& input, const TensorView& output, int root,
                            const UserOp& op) {
  std::string why = refusal_of_root(root, size());
  if (why.empty()) why = rank() == root ? refusal(input, output) : refusal(input);
  Request request = request_for("reduce", Verb::reduce, input, op, why);
  request.root = root;
  const CountedReduction counted(group_->engine().statistics(), "reduce_user_op",
                                 input.size_bytes());
  if (is_for_all(request)) return combine_all(request, rank() == root ? output.bytes() : nullptr);
  if (!op.elementwise) {
    std::byte* const blocks = collect(request, input, root);
    if (rank() == root) combine(request, blocks, input.shape());
    end(request);
    if (rank() != root) return;
    return output.copy_from(ConstTensorView(blocks, input.shape(), request.dtype));
  }
  const std::vector<std::size_t> counts = shares_of(input.count());
  std::byte* const blocks = share_out(request, input, counts);
  combine(request, blocks, {static_cast<std::int64_t>(counts[static_cast<std::size_t>(rank())])});
  BlockSegments segments(rank(), blocks, output.bytes(), request.dtype, counts.size());
  for (int from = 0; from < size(); ++from) {
    segments.add(from, root, counts[static_cast<std::size_t>(from)]);
  }
  move(request, Kind::gather, segments);
}

/// Every block is combined by the rank that gets it, as a whole.
void UserReductions::reduce_scatter(const ConstTensorView& input, const TensorView& output,
                                    const UserOp& op) {
  const auto ranks = static_cast<std::size_t>(size());
  const Request request =
      request_for("reduce_scatter", Verb::reduce_scatter, input, op,
                  refusal_of_blocks(input, output, ranks * output.count() == input.count()));
  const CountedReduction counted(group_->engine().statistics(), "reduce_scatter_user_op",
                                 input.size_bytes());
  std::byte* const blocks =
      share_out(request, input, std::vector<std::size_t>(ranks, output.count()));
  combine(request, blocks, output.shape());
  end(request);
  output.copy_from(ConstTensorView(blocks, output.shape(), request.dtype));
}

UserReductions& Communicator::user_reductions() {
  if (user_reductions_ == nullptr) user_reductions_ = std::make_shared<UserReductions>(group_);
  return *user_reductions_;
}

void Communicator::allreduce(const ConstTensorView& input, const TensorView& output,
                             const UserOp& op) {
  user_reductions().allreduce(input, output, op);
}

void Communicator::reduce(const ConstTensorView& input, const TensorView& output, int root,
                          const UserOp& op) {
  user_reductions().reduce(input, output, root, op);
}

void Communicator::reduce_scatter(const ConstTensorView& input, const TensorView& output,
                                  const UserOp& op) {
  user_reductions().reduce_scatter(input, output, op);
}

}  // namespace tutti
