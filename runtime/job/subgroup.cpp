// SPDX-License-Identifier: Apache-2.0
// Makes groups of some of a group's ranks. That takes two agreements of the parent's ranks,
// including those outside the new group:
//
//   number    the largest of all ranks' next numbers, which determines the tags of the messages
//   block     members make a control block in their arena, and store its offset where the ranks of
//             the node find it
//   members   each member finds the blocks of its node
//
// If only the members call, they agree by messages of the parent along a binomial tree: 2 log2 P in
// sequence, and the number is the largest of the members'. Then two groups may have the same
// number, but they never have two ranks in common.
//
// So messages, memory and mappings are those of the parent. No call of MPI is needed, which might
// wait forever, and there is nothing to free that needs the consent of others.
#include "runtime/job/subgroup.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/error.hpp"

#include "collectives/job/function_ref.hpp"
#include "collectives/job/local_error.hpp"
#include "runtime/base/digest.hpp"
#include "runtime/job/agree.hpp"

namespace tutti {

namespace {

using collectives::Engine;
using collectives::Kind;
using collectives::Segment;

/// The right to draw a number, which only one thread of a process has at a time.
class Drawing {
 public:
  enum class With { all, members };
  /// Errors: invalid_argument, on this rank alone or on all ranks.
  Drawing(Group& parent, const std::string& what, With with = With::all)
      : numbers_(parent.numbers()) {
    if (!numbers_.is_drawing.exchange(true)) return;
    const std::string why =
        "another thread of this process is making a group; make them one after the other";
    if (with == With::members) throw Error(ErrorCode::invalid_argument, why);
    parent.engine().throw_on_all_ranks(ErrorCode::invalid_argument, what + ": " + why);
  }
  ~Drawing() { numbers_.is_drawing.store(false); }
  Drawing(const Drawing&) = delete;
  Drawing& operator=(const Drawing&) = delete;

  [[nodiscard]] std::int32_t next() const { return numbers_.next.load(); }
  void take(std::int32_t number) { numbers_.next.store(number + 1); }

 private:
  GroupNumbers& numbers_;
};

/// Finds the control blocks of the members on this rank's node.
void find_blocks(std::vector<collectives::Peer>& node, const collectives::NodeMemory& memory) {
  for (collectives::Peer& member : node) {
    const auto peer = std::ranges::find(memory.peers, member.arena, &collectives::Peer::arena);
    member.block =
        reinterpret_cast<collectives::ControlBlock*>(member.arena + peer->control().subgroup);
  }
}

using Agree = collectives::FunctionRef<void(const std::function<void()>& body)>;

/// Cleans up if some rank could not make its group. Like a group that ends, this rank stops
/// accessing control blocks, and frees its own once nobody accesses it.
void depart(Scratch& scratch, const std::vector<collectives::Peer>& node) {
  for (const collectives::Peer& member : node) {
    member.block->departed.fetch_add(1, std::memory_order_release);
  }
  // If there is no memory for this, the block is leaked.
  static_cast<void>(
      collectives::caught([&] { scratch.retire(static_cast<std::uint32_t>(node.size())); }));
}

/// `members`: empty if this rank is in no group. Collective over the ranks of `agree`: all ranks of
/// the parent, or only the members.
std::shared_ptr<Group> make(Group& parent, const std::vector<int>& members, int number,
                            Agree agree) {
  Engine& engine = parent.engine();
  std::optional<GroupParts> parts;
  std::shared_ptr<Scratch> scratch;
  std::vector<collectives::Peer> node;
  agree([&] {
    if (members.empty()) return;
    constexpr bool kHasConsumers = true;
    parts = parent.parts_for(members, number, kHasConsumers);
    parts->transport = parent.transport_for(members, *parts);
    node = parts->node;
    scratch = parts->scratch;
    engine.memory().control().subgroup = scratch->offset_of_control();
  });
  std::optional<collectives::LocalError> failed;
  if (parts) {
    scratch->share();
    find_blocks(node, engine.memory());
    const bool by_mpi = parts->tuning.exchange == collectives::Exchange::mpi;
    if (by_mpi && parts->topology.num_nodes() > 1) {
      failed = collectives::caught([&] { parts->transport->make_lane(parts->topology.lane()); });
    }
  }
  std::shared_ptr<Group> group;
  try {
    agree([&] {
      if (failed) throw Error(failed->code, failed->text);
      if (!parts) return;
      parts->node = node;
      group = std::make_shared<Group>(std::move(*parts));
    });
  } catch (...) {
    if (parts && group == nullptr) depart(*scratch, node);
    throw;
  }
  return group;
}

std::shared_ptr<Group> make_with_all(Group& parent, const std::vector<int>& members, int number) {
  return make(parent, members, number,
              [&](const std::function<void()>& body) { tutti::agree(parent.engine(), body); });
}

/// Formats a list such as "0, 2, 4".
std::string listed(std::span<const int> ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

/// Returns why a list is invalid; empty if it has ranks of the group, each once.
std::string refusal(std::span<const int> ranks, int size) {
  if (ranks.empty()) return "a group needs a rank";
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::ranges::sort(sorted);
  for (const int rank : {sorted.front(), sorted.back()}) {
    if (rank >= 0 && rank < size) continue;
    return std::to_string(rank) + " is not a rank; expected 0 to " + std::to_string(size - 1);
  }
  const auto twice = std::ranges::adjacent_find(sorted);
  return twice == sorted.end() ? "" : "rank " + std::to_string(*twice) + " is named twice";
}

/// Agreements of the members without the other ranks: on the largest number, and on the error of
/// the first member that has one.
class Members {
 public:
  Members(Group& parent, std::span<const int> ranks, const std::string& what)
      : engine_(parent.engine()), ranks_(ranks), what_(what) {
    const auto own = std::ranges::find(ranks, parent.topology().rank);
    index_ = static_cast<int>(own - ranks.begin());
  }

  /// Returns the largest number of all members. Collective over the members.
  std::int32_t largest(std::int32_t number) {
    Said said = nothing_said();
    said.number = number;
    return meet(said).number;
  }
  /// Runs `body`; if it throws on any member, all members throw the error. Collective over the
  /// members.
  void agree(const std::function<void()>& body) {
    Said said = nothing_said();
    if (const auto error = collectives::caught(body)) {
      said.failed = index_;
      said.code = static_cast<std::int32_t>(error->code);
      error->text.copy(said.text.data(), said.text.size() - 1);
    }
    said = meet(said);
    if (said.failed == kNobody) return;
    const int rank = ranks_[static_cast<std::size_t>(said.failed)];
    throw Error(
        static_cast<ErrorCode>(said.code),
        what_ + ": " + collectives::name_of(engine_.topology(), rank) + ": " + said.text.data(),
        ErrorScope::agreed, said.failed == index_);
  }

 private:
  static constexpr std::int32_t kNobody = std::numeric_limits<std::int32_t>::max();
  struct Said {
    std::int32_t number;
    std::int32_t failed;  ///< index of a member
    std::int32_t code;
    std::array<char, 500> text;
  };
  static Said nothing_said() { return {.number = 0, .failed = kNobody, .code = 0, .text = {}}; }

  static void take(Said& said, const Said& other) {
    const std::int32_t number = std::max(said.number, other.number);
    if (other.failed < said.failed) said = other;
    said.number = number;
  }
  /// Combines the statements up the tree, whose root is the first member, and passes the result
  /// down.
  Said meet(Said said) {
    const int count = static_cast<int>(ranks_.size());
    int step = 1;
    for (; step < count && (index_ & step) == 0; step *= 2) {
      if (index_ + step < count) take(said, receive(index_ + step));
    }
    if (index_ != 0) {
      send(index_ - step, said);
      said = receive(index_ - step);
    }
    for (step /= 2; step > 0; step /= 2) {
      if (index_ + step < count) send(index_ + step, said);
    }
    return said;
  }
  void send(int member, Said said) {
    engine_.messages().send(ranks_[static_cast<std::size_t>(member)], message(said),
                            [&] { return what_; });
  }
  Said receive(int member) {
    Said said{};
    engine_.messages().receive(ranks_[static_cast<std::size_t>(member)], message(said),
                               [&] { return what_; });
    return said;
  }
  static collectives::Message message(Said& said) {
    return {reinterpret_cast<std::byte*>(&said), sizeof said, DType::uint8};
  }

  Engine& engine_;
  std::span<const int> ranks_;
  const std::string& what_;
  int index_;
};

/// The arguments of one rank in a split.
struct SplitArguments {
  std::int32_t color;
  std::int32_t key;
  std::int32_t next_number;
};

}  // namespace

std::shared_ptr<Group> split(Group& parent, int color, int key) {
  const std::string what =
      "split(color " + std::to_string(color) + ", key " + std::to_string(key) + ")";
  Drawing drawing(parent, what);
  const collectives::Topology& topology = parent.topology();
  const SplitArguments own{color, key, drawing.next()};
  std::vector<SplitArguments> all(static_cast<std::size_t>(topology.size));
  const std::vector<Segment> segments = collectives::allgather_segments(
      topology.size, reinterpret_cast<const std::byte*>(&own),
      reinterpret_cast<std::byte*>(all.data()), sizeof own / sizeof(std::int32_t), DType::int32);
  const auto describe = [&] { return what; };
  parent.engine().run({.kind = Kind::allgather,
                       .digest = Digest().add(std::string_view("split")).value(),
                       .segments = segments,
                       .describe = describe});
  std::vector<int> members;
  int number = 0;
  for (int rank = 0; rank < topology.size; ++rank) {
    if (all[rank].color == color) members.push_back(rank);
    number = std::max(number, all[rank].next_number);
  }
  std::ranges::stable_sort(members, {}, [&](int rank) { return all[rank].key; });
  drawing.take(number);
  return make_with_all(parent, members, number);
}

std::shared_ptr<Group> make_subgroup(Group& parent, std::span<const int> ranks) {
  const std::string what = "subgroup(" + listed(ranks) + ")";
  Drawing drawing(parent, what);
  Engine& engine = parent.engine();
  if (const std::string why = refusal(ranks, parent.topology().size); !why.empty()) {
    engine.throw_on_all_ranks(ErrorCode::invalid_argument, what + ": " + why);
  }
  std::int32_t number = drawing.next();
  auto* memory = reinterpret_cast<std::byte*>(&number);
  const Segment segment{memory, memory, 1, DType::int32};
  const auto describe = [&] { return what; };
  engine.run({.kind = Kind::allreduce,
              .reduce = ReduceOp::max,
              .digest = Digest().add(std::string_view(what)).value(),
              .segments = {&segment, 1},
              .describe = describe});
  drawing.take(number);
  std::vector<int> members;
  if (std::ranges::find(ranks, parent.topology().rank) != ranks.end()) {
    members.assign(ranks.begin(), ranks.end());
  }
  return make_with_all(parent, members, number);
}

std::shared_ptr<Group> make_group_of_members(Group& parent, std::span<const int> ranks) {
  const std::string what = "create_group(" + listed(ranks) + ")";
  std::string why = refusal(ranks, parent.topology().size);
  if (why.empty() && std::ranges::find(ranks, parent.topology().rank) == ranks.end()) {
    why = "this rank, " + std::to_string(parent.topology().rank) +
          ", is not in the list; only the group's ranks make this call";
  }
  if (!why.empty()) throw Error(ErrorCode::invalid_argument, what + ": " + why);
  parent.await_async();
  Members members(parent, ranks, what);
  std::optional<Drawing> drawing;
  members.agree([&] { drawing.emplace(parent, what, Drawing::With::members); });
  const std::int32_t number = members.largest(drawing->next());
  drawing->take(number);
  return make(parent, {ranks.begin(), ranks.end()}, number,
              [&](const std::function<void()>& body) { members.agree(body); });
}

}  // namespace tutti
