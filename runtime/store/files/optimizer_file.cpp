// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/files/optimizer_file.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "tutti/error.hpp"

#include "runtime/base/throw.hpp"
#include "runtime/checkpoint/seal.hpp"

namespace tutti {

namespace {

using Json = nlohmann::json;  // sorted: ordered_json searches all names for each

constexpr const char* kOptimizerName = "tutti.optimizer";
constexpr const char* kUpdatesName = "tutti.updates";
constexpr const char* kScalingName = "tutti.scaling";

std::string state_name(const Entry& entry, std::size_t index) {
  return to_string(entry.key) + "/" + std::to_string(index);
}

/// A digest of everything that an update depends on, but for the learning rate, which programs
/// change as they go, unless a schedule does.
std::string fingerprint_of(Optimizer& optimizer) {
  if (optimizer.options().schedule) return checkpoint::in_hex(optimizer.fingerprint());
  const double learning_rate = optimizer.learning_rate();
  optimizer.set_learning_rate(0.0);
  const std::uint64_t fingerprint = optimizer.fingerprint();
  optimizer.set_learning_rate(learning_rate);
  return checkpoint::in_hex(fingerprint);
}

Json description_of(Optimizer& optimizer) {
  return {{"name", optimizer.name()},
          {"options", optimizer.describe()},
          {"fingerprint", fingerprint_of(optimizer)}};
}

/// The JSON object in a text that this library has written.
Json json_in(const checkpoint::Header& header, const char* name) {
  Json json = Json::parse(header.text(name), nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) return json;
  throw Error(ErrorCode::corrupt_file, std::string(name) + " is not a JSON object");
}

void require_same_optimizer(const Json& saved, Optimizer& optimizer, bool other_options) {
  const Json running = description_of(optimizer);
  const std::string name = saved.value("name", "");
  if (name != optimizer.name()) {
    throw_invalid_argument(
        "the saved states are of " + name + ", but this store runs " + optimizer.name() +
        "; set_optimizer the same one before the load (weights_only takes the values alone)");
  }
  if (other_options || saved.value("fingerprint", "") == running.value("fingerprint", "")) return;
  const std::string before = saved.value("options", "");
  const std::string now = optimizer.describe();
  throw_invalid_argument(
      before == now ? "the saved states are of " + name +
                          " with other multipliers of the keys; set them alike before the load, "
                          "or load with other_options"
                    : "the saved states are of " + before + ", but this store runs " + now +
                          "; set them alike before the load, or load with other_options");
}

/// Numbers are written as text, which keeps all their bits. A norm that is not finite, which JSON
/// has no word for, is left out.
Json to_json(const GradientScaling& scaling) {
  Json json = {{"loss_scale", scaling.loss_scale},
               {"good_pushes", scaling.good_pushes},
               {"skipped", scaling.skipped},
               {"was_skipped", scaling.was_skipped}};
  if (std::isfinite(scaling.norm)) json["norm"] = scaling.norm;
  return json;
}

/// The scaling in a file. None if its optimizer has no scaling, or if the file is from before
/// scaling existed.
std::optional<GradientScaling> scaling_in(const checkpoint::Header& header) {
  const auto found =
      std::ranges::find(header.metadata, kScalingName, &std::pair<std::string, std::string>::first);
  if (found == header.metadata.end()) return std::nullopt;
  const Json json = json_in(header, kScalingName);
  try {
    GradientScaling scaling{.loss_scale = json.at("loss_scale").get<double>(),
                            .good_pushes = json.at("good_pushes").get<std::uint64_t>(),
                            .skipped = json.at("skipped").get<std::uint64_t>(),
                            .norm = json.value("norm", std::numeric_limits<double>::quiet_NaN()),
                            .was_skipped = json.at("was_skipped").get<bool>()};
    if (std::isfinite(scaling.loss_scale) && scaling.loss_scale > 0) return scaling;
  } catch (const Json::exception&) {
  }
  throw Error(ErrorCode::corrupt_file, std::string(kScalingName) +
                                           " is not a loss scale and its "
                                           "counters");
}

std::uint64_t updates_of(const Json& updates, const Entry& entry) {
  const auto found = updates.find(to_string(entry.key));
  if (found != updates.end() && found->is_number_unsigned()) return found->get<std::uint64_t>();
  throw_invalid_argument("the file has no states for this store's key " + to_string(entry.key));
}

void require_no_others(const Json& updates, std::span<Entry* const> entries) {
  std::unordered_map<std::string, const Entry*> known;
  for (const Entry* entry : entries) known.emplace(to_string(entry->key), entry);
  for (const auto& [name, count] : updates.items()) {
    if (!known.contains(name))
      throw_invalid_argument("the file has states for key " + name +
                             ", which this store does not hold");
  }
}

}  // namespace

std::string kind_of_keys(std::span<Entry* const> entries) {
  return !entries.empty() && entries.front()->key.is_string() ? "strings" : "numbers";
}

checkpoint::Content optimizer_content(const UpdateRule& rule, std::span<Entry* const> entries) {
  checkpoint::Content content;
  Json updates = Json::object();
  for (Entry* entry : entries) {
    checkpoint::require_utf8(to_string(entry->key), "key " + to_string(entry->key));
    updates[to_string(entry->key)] = entry->updates;
    for (std::size_t i = 0; i < entry->states.size(); ++i) {
      content.tensors.push_back({state_name(*entry, i), entry->states[i].view()});
    }
  }
  content.texts = {{kKeysName, kind_of_keys(entries)},
                   {kOptimizerName, description_of(*rule.optimizer()).dump()},
                   {kUpdatesName, updates.dump()}};
  if (rule.scaler != nullptr) {
    content.texts.emplace_back(kScalingName, to_json(rule.scaler->state()).dump());
  }
  return content;
}

StagedStates::StagedStates(Group& group, const checkpoint::Header& header, const UpdateRule& rule,
                           std::span<Entry* const> entries, bool other_options)
    : group_(group), scaler_(rule.scaler), scaling_(scaling_in(header)) {
  Optimizer& optimizer = *rule.optimizer();
  require_same_optimizer(json_in(header, kOptimizerName), optimizer, other_options);
  const Json updates = json_in(header, kUpdatesName);
  if (!entries.empty() && header.text(kKeysName) != kind_of_keys(entries)) {
    throw_invalid_argument("the file's keys are " + header.text(kKeysName) + ", this store's are " +
                           kind_of_keys(entries));
  }
  SavedTensors saved;
  for (const checkpoint::TensorInfo& tensor : header.tensors) saved.emplace(tensor.name, &tensor);
  for (Entry* entry : entries) stage(*entry, updates_of(updates, *entry), saved, optimizer);
  require_no_others(updates, entries);
  std::unordered_map<std::string, std::byte*> places;
  for (Staged& staged : staged_) {
    for (std::size_t i = 0; i < staged.states.size(); ++i) {
      places.emplace(state_name(*staged.entry, i), staged.states[i].bytes());
    }
  }
  for (const checkpoint::TensorInfo& tensor : header.tensors) {
    const auto place = places.find(tensor.name);
    if (place == places.end())
      throw_invalid_argument("the file has a state that is nobody's: " + tensor.name);
    destinations_.push_back(place->second);
  }
}

/// Prepares the states of one key. A key that was never updated has no states in the file.
void StagedStates::stage(Entry& entry, std::uint64_t updates, const SavedTensors& saved,
                         const Optimizer& optimizer) {
  Staged staged{&entry, updates, {}};
  std::vector<Tensor> states = new_states(group_, optimizer, entry);
  std::size_t found = 0;
  for (std::size_t i = 0; i < states.size(); ++i) {
    const std::string name = state_name(entry, i);
    const auto place = saved.find(name);
    if (place == saved.end()) continue;
    ++found;
    const checkpoint::TensorInfo& tensor = *place->second;
    if (tensor.shape == states[i].shape() && tensor.dtype == states[i].dtype()) continue;
    throw_invalid_argument("state " + name + " is " + to_string(tensor.shape) + " " +
                           to_string(tensor.dtype) + " in the file; " + optimizer.name() +
                           " here has " + to_string(states[i].shape()) + " " +
                           to_string(states[i].dtype()));
  }
  if (found != states.size() && (found != 0 || updates != 0)) {
    throw_invalid_argument("key " + to_string(entry.key) + " has " + std::to_string(found) +
                           " states in the file; " + optimizer.name() + " here has " +
                           std::to_string(states.size()));
  }
  if (found != 0) staged.states = std::move(states);
  staged_.push_back(std::move(staged));
}

void StagedStates::commit() {
  if (scaler_ != nullptr) scaling_ ? scaler_->restore(*scaling_) : scaler_->reset();
  for (Staged& staged : staged_) {
    staged.entry->updates = staged.updates;
    staged.entry->states = std::move(staged.states);
  }
}

}  // namespace tutti
