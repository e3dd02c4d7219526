// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/core/given_states.hpp"

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/digest.hpp"
#include "runtime/base/throw.hpp"
#include "runtime/store/core/together.hpp"

namespace tutti {

namespace {

constexpr const char* kSetStates = "set_optimizer_states";

struct Staged {
  Entry* entry;
  std::vector<Tensor> states;
};

/// Errors  invalid_argument: the given states are not those that the optimizer keeps for the entry.
void require_fit(const Optimizer& optimizer, const Entry& entry, const KeyStates& given) {
  require_updatable(optimizer, entry);
  const bool is_half = size_of(entry.dtype()) == 2;
  const auto own = static_cast<std::size_t>(optimizer.num_states());
  const std::size_t found = given.states.size();
  const bool has_all = found == own || (is_half && found == own + 1);
  if (given.updates == 0 ? found != 0 : !has_all) {
    throw_invalid_argument(entry, optimizer.name() + " has " + std::to_string(own) +
                                      " states after an update and none before; got " +
                                      std::to_string(found) + " and " +
                                      std::to_string(given.updates) + " updates");
  }
  const DType dtype = is_half ? DType::float32 : entry.dtype();
  for (const ConstTensorView& state : given.states) {
    require_shape(entry, state, "state");
    if (state.dtype() == dtype && state.device() == cpu()) continue;
    throw_invalid_argument(entry, "expected states of " + std::string(to_string(dtype)) +
                                      " on the cpu; got " + std::string(to_string(state.dtype())) +
                                      " on " + to_string(state.device()));
  }
}

std::uint64_t digest_of(std::span<const KeyStates> given) {
  Digest digest;
  for (const KeyStates& one : given) {
    digest.add(one.key).add(one.updates);
    for (const ConstTensorView& state : one.states) {
      digest.add(
          std::string_view(reinterpret_cast<const char*>(state.bytes()), state.size_bytes()));
    }
  }
  return digest.value();
}

std::vector<Tensor> copies_of(Group& group, const Optimizer& optimizer, const Entry& entry,
                              const KeyStates& given) {
  if (given.updates == 0) return {};
  std::vector<Tensor> states = new_states(group, optimizer, entry);
  for (std::size_t i = 0; i < states.size(); ++i) {
    if (i < given.states.size()) {
      states[i].view().copy_from(given.states[i]);
    } else {
      states[i].view().copy_from(entry.replica);
    }
  }
  return states;
}

}  // namespace

void take_states(Group& group, KeyTable& table, const UpdateRule& rule,
                 std::span<const KeyStates> given) {
  const Optimizer* optimizer = rule.optimizer();
  std::vector<Staged> staged;
  throw_together(group.engine(), kSetStates, [&] {
    if (optimizer == nullptr) {
      throw_invalid_argument("this store runs no optimizer; call set_optimizer");
    }
    for (const KeyStates& one : given) {
      Entry& entry = table.at(one.key);
      require_fit(*optimizer, entry, one);
      staged.push_back({&entry, {}});
    }
  });
  agree_on(group.engine(), collectives::Verb::load, kSetStates, digest_of(given));
  throw_together(group.engine(), kSetStates, [&] {
    for (std::size_t i = 0; i < staged.size(); ++i) {
      staged[i].states = copies_of(group, *optimizer, *staged[i].entry, given[i]);
    }
  });
  for (std::size_t i = 0; i < staged.size(); ++i) {
    staged[i].entry->updates = given[i].updates;
    staged[i].entry->states = std::move(staged[i].states);
  }
  table.recount();
}

}  // namespace tutti
