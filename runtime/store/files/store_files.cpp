// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/files/store_files.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <utility>

#include "runtime/base/digest.hpp"
#include "runtime/base/throw.hpp"
#include "runtime/checkpoint/checkpoint.hpp"
#include "runtime/store/core/host_copies.hpp"
#include "runtime/store/core/replica.hpp"
#include "runtime/store/core/together.hpp"
#include "runtime/store/files/optimizer_file.hpp"
#include "runtime/store/files/saved_residuals.hpp"
#include "runtime/store/files/saved_rows.hpp"

namespace tutti {

namespace {

using checkpoint::Content;
using checkpoint::Header;
using checkpoint::TensorInfo;

Content weights_content(std::span<Entry* const> entries) {
  Content content;
  for (Entry* entry : entries) {
    const std::string name = to_string(entry->key);
    checkpoint::require_utf8(name, "key " + name);
    if (name == "__metadata__")
      throw_invalid_argument("key __metadata__ has a meaning of its own in safetensors");
    content.tensors.push_back({name, entry->replica.view()});
  }
  content.texts = {{kKeysName, kind_of_keys(entries)}};
  add_row_sparse_names(content, entries);
  return content;
}

void require_utf8(const Metadata& metadata) {
  for (const auto& [name, text] : metadata) {
    checkpoint::require_utf8(name + text, "metadata '" + name + "'");
  }
}

std::uint64_t digest_of(const std::filesystem::path& path, std::span<Entry* const> entries,
                        const UpdateRule& rule, const Metadata& metadata) {
  Digest digest;
  digest.add(std::string_view(path.native())).add(rule.fingerprint());
  for (const Entry* entry : entries) {
    digest.add(entry->key).add(entry->shape(), entry->dtype()).add(entry->updates);
    digest.add(std::uint64_t{entry->residual.has_value()});
  }
  for (const auto& [name, text] : metadata) {
    digest.add(std::string_view(name)).add(std::string_view(text));
  }
  return digest.value();
}

std::uint64_t digest_of(const std::filesystem::path& path, const LoadOptions& options) {
  const int flags = (options.weights_only ? 1 : 0) + (options.other_options ? 2 : 0) +
                    (options.may_be_absent ? 4 : 0);
  return Digest()
      .add(std::string_view(path.native()))
      .add(static_cast<std::uint64_t>(flags))
      .value();
}

Key key_of(const Header& header, const std::string& name) {
  if (header.text(kKeysName) == "strings") return name;
  std::int64_t number = 0;
  std::from_chars(name.data(), name.data() + name.size(), number);
  if (std::to_string(number) == name) return number;
  throw Error(ErrorCode::corrupt_file, "'" + name + "' is not a number, as the keys should be");
}

/// The entries of the file's tensors. The store's keys must be those of the file.
std::vector<Entry*> match(const Header& header, KeyTable& table) {
  std::vector<Entry*> entries;
  const std::set<std::string> sparse = row_sparse_names(header);
  for (const TensorInfo& tensor : header.tensors) {
    const Key key = key_of(header, tensor.name);
    Entry* entry = table.find(key);
    if (entry == nullptr) {
      throw_invalid_argument(to_string(key, tensor.shape, tensor.dtype) +
                             " is in the checkpoint, but not in this store");
    }
    if (!(entry->shape() == tensor.shape) || entry->dtype() != tensor.dtype) {
      throw_invalid_argument(to_string(key, entry->shape(), entry->dtype()) + " is " +
                             to_string(tensor.shape) + " " + to_string(tensor.dtype) +
                             " in the checkpoint");
    }
    if (sparse.contains(tensor.name) != entry->is_row_sparse()) {
      throw_invalid_argument(to_string(key, entry->shape(), entry->dtype()) +
                             (entry->is_row_sparse()
                                  ? " is row-sparse here, but dense in the checkpoint"
                                  : " is dense here, but row-sparse in the checkpoint"));
    }
    entries.push_back(entry);
  }
  if (entries.size() == table.size()) return entries;
  for (auto& [key, entry] : table) {
    if (std::ranges::find(entries, &entry) != entries.end()) continue;
    throw_invalid_argument(to_string(key, entry.shape(), entry.dtype()) +
                           " is not in the checkpoint");
  }
  return entries;
}

std::vector<Entry> make_entries(const Header& header, Group& group) {
  std::vector<Entry> entries;
  const std::set<std::string> sparse = row_sparse_names(header);
  for (const TensorInfo& tensor : header.tensors) {
    const Storage storage = sparse.contains(tensor.name) ? Storage::row_sparse : Storage::dense;
    Replica replica = new_replica(group, storage, tensor.shape, tensor.dtype);
    entries.push_back({.key = key_of(header, tensor.name),
                       .order = entries.size(),
                       .replica = std::move(replica.tensor),
                       .pages = std::move(replica.pages)});
  }
  return entries;
}

/// True if states are loaded. Throws if options and checkpoint leave it open.
bool loads_states(bool is_saved, const Optimizer* running, bool weights_only) {
  if (weights_only) return false;
  if (is_saved && running == nullptr) {
    throw_invalid_argument(
        "the checkpoint has an optimizer's states, but this store runs none; set_optimizer "
        "before the load, or load with weights_only");
  }
  if (!is_saved && running != nullptr) {
    throw_invalid_argument("the checkpoint was saved without an optimizer, but this store runs " +
                           running->name() + "; load with weights_only, then it starts anew");
  }
  return is_saved;
}

/// One name of a directory for all spellings of its path.
std::filesystem::path one_name_of(const std::filesystem::path& directory) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(directory, error);
  std::filesystem::path name = std::filesystem::weakly_canonical(absolute, error);
  if (error) name = absolute.lexically_normal();
  return name.has_filename() ? name : name.parent_path();
}

/// Throws the error that is being handled on, unless it is a lack of memory that the store
/// survives.
void require_lack_of_memory(const Error& error) {
  if (error.code() != ErrorCode::out_of_memory || !error.recoverable()) throw;
}

/// Logs a load, as a warning if a part of the checkpoint could not be used.
void log_load(const collectives::Log& log, const std::filesystem::path& directory,
              const LoadResult& result) {
  const bool is_whole = result.damaged.empty() && result.reset_residuals.empty() &&
                        !result.from_memory && result.lost_pushes == 0;
  const std::string number = std::to_string(result.generation);
  std::string text = result.from_memory ? "loaded snapshot " + number + " of the nodes' memory for "
                                        : "loaded generation " + number + " of ";
  text += directory.string();
  if (result.pushes > 0) text += ", of push " + std::to_string(result.pushes);
  if (const auto step = result.metadata.find("step"); step != result.metadata.end()) {
    text += " (step " + step->second + ")";
  }
  if (result.lost_pushes > 0) {
    text += "; " + std::to_string(result.lost_pushes) + " later pushes were lost";
  }
  for (const std::string& reason : result.damaged) text += "; " + reason;
  if (!result.reset_residuals.empty()) text += "; " + result.reset_residuals;
  log.write(is_whole ? LogLevel::info : LogLevel::warning, text);
}

}  // namespace

void StoreFiles::require_optimizer() const {
  if (store_.rule.optimizer() != nullptr) return;
  throw_invalid_argument("this store runs no optimizer; call set_optimizer");
}

template <class Body>
void StoreFiles::with_content(const char* call, const std::filesystem::path& directory,
                              const Metadata& metadata, Body body) {
  const std::vector<Entry*> entries = store_.table.in_order();
  std::optional<HostCopies> host_copies;
  ReadableValues residuals(*group_);
  const std::string owner = owner_of_residuals(store_.compression, *group_);
  checkpoint::StoreContent content{.weights = {},
                                   .optimizer = {},
                                   .residuals = {},
                                   .metadata = metadata,
                                   .pushes = snapshots_.pushes()};
  throw_together(group_->engine(), call, [&] {
    if (directory.empty()) throw_invalid_argument("expected the path of a directory, got none");
    require_utf8(metadata);
    host_copies.emplace(*group_, entries);
    content.weights = weights_content(entries);
    if (store_.rule.optimizer() != nullptr)
      content.optimizer = optimizer_content(store_.rule, entries);
    content.residuals = residual_content(entries, owner, residuals);
  });
  const std::uint64_t digest = digest_of(directory, entries, store_.rule, metadata);
  agree_on(group_->engine(), collectives::Verb::save, call + (" to " + directory.string()),
           Digest().add(digest).add(std::string_view(owner)).value());
  body(entries, content, *host_copies);
}

void StoreFiles::save(const std::filesystem::path& directory, const Metadata& metadata,
                      collectives::FunctionRef<std::uint64_t(std::span<Entry* const>)> compare) {
  Communicator ranks(group_);
  finish_copy(ranks);
  with_content("save", directory, metadata,
               [&](std::span<Entry* const> entries, const checkpoint::StoreContent& content,
                   HostCopies& host_copies) {
                 if (compare(entries) > 0) {
                   fail_together(group_->engine(), [&] { host_copies.write_back(); });
                 }
                 std::uint64_t& good = good_[one_name_of(directory)];
                 const auto known = good == 0 ? std::nullopt : std::optional(good);
                 const auto saved = checkpoint::save(ranks, directory, content, known);
                 good = saved.generation;
                 if (ranks.rank() == 0) log_save(directory, saved);
               });
}

/// Logs a save, on rank 0.
void StoreFiles::log_save(const std::filesystem::path& directory, const checkpoint::Saved& saved) {
  const std::string text =
      "saved generation " + std::to_string(saved.generation) + " in " + directory.string();
  group_->log().write(LogLevel::info, text);
  for (const std::string& reason : saved.remaining) {
    group_->log().warn(text + ", where old files remain: " + reason);
  }
}

void StoreFiles::snapshot(const std::filesystem::path& directory, const Metadata& metadata) {
  static_cast<void>(take_snapshot("snapshot", directory, metadata));
}

std::filesystem::path StoreFiles::take_snapshot(const char* call,
                                                const std::filesystem::path& directory,
                                                const Metadata& metadata) {
  Communicator ranks(group_);
  std::filesystem::path folder;
  with_content(call, directory, metadata,
               [&](std::span<Entry* const>, const checkpoint::StoreContent& content, HostCopies&) {
                 checkpoint::Snapshots& of = snapshots_.of(ranks, one_name_of(directory));
                 folder = of.folder_of(of.take(content, writer_.held()));
               });
  return folder;
}

bool StoreFiles::is_snapshot_due() {
  Communicator ranks(group_);
  return snapshots_.is_due(ranks);
}

bool StoreFiles::take_due_snapshot(const std::filesystem::path& directory,
                                   const Metadata& metadata) {
  try {
    snapshot(directory, metadata);
  } catch (const Error& error) {
    require_lack_of_memory(error);
    warn(std::string(error.what()) +
         "; no more snapshots are taken, the job goes on with save() alone");
    snapshots_.end_schedule();
    return false;
  }
  snapshots_.was_taken();
  return true;
}

void StoreFiles::warn(const std::string& text) {
  if (group_->topology().rank == 0) group_->log().warn(text);
}

std::optional<Pending> StoreFiles::save_async(const std::filesystem::path& directory,
                                              const Metadata& metadata) {
  Communicator ranks(group_);
  finish_copy(ranks);
  try {
    return start_copy(ranks, directory, metadata);
  } catch (const Error& error) {
    require_lack_of_memory(error);
    if (!std::exchange(has_warned_, true)) {
      warn(std::string(error.what()) + "; until then save_async() is save(), so the program waits");
    }
    return std::nullopt;
  }
}

/// Errors  agreed: out_of_memory, io.
Pending StoreFiles::start_copy(Communicator& ranks, const std::filesystem::path& directory,
                               const Metadata& metadata) {
  const std::filesystem::path from = take_snapshot("save_async", directory, metadata);
  const std::filesystem::path name = one_name_of(directory);
  Pending pending;
  ranks.agree([&] {
    if (ranks.rank() != 0) return;
    const std::uint64_t good = good_[name];
    const auto known = good == 0 ? std::nullopt : std::optional(good);
    pending = writer_.start(
        snapshots_.of(ranks, name).newest(),
        [from, directory, known] { return checkpoint::save_copy(from, directory, known); },
        [log = group_->log()](const std::string& text) { log.warn(text); });
  });
  copying_to_ = directory;
  return pending;
}

/// Rank 0 waits in parts, so that the others' deadline is for each of them.
void StoreFiles::finish_copy(Communicator& ranks) {
  if (copying_to_.empty()) return;
  const std::filesystem::path directory = std::exchange(copying_to_, {});
  constexpr std::chrono::duration<double> kPart{1.0};
  const auto timeout = group_->settings().timeout;
  const auto part = timeout.count() > 0 ? std::min(kPart, timeout / 4) : kPart;
  std::int64_t is_done = 0;
  while (is_done == 0) {
    if (ranks.rank() == 0) is_done = writer_.wait_for(part) ? 1 : 0;
    ranks.broadcast(view(&is_done, {1}), 0);
  }
  ranks.agree([&] {
    if (ranks.rank() != 0) return;
    if (const auto saved = writer_.take()) {
      good_[one_name_of(directory)] = saved->generation;
      log_save(directory, *saved);
    }
  });
}

/// Reads the newest of the snapshots in the nodes' memory and the checkpoints on the disk.
std::optional<checkpoint::LoadedStore> StoreFiles::read_newest(
    Communicator& ranks, const std::filesystem::path& directory, const LoadOptions& options,
    const std::string& owner) {
  const checkpoint::Wanted wanted{.weights_only = options.weights_only,
                                  .owner_name = kOwnerName,
                                  .owner = owner,
                                  .ranks = ranks.size()};
  std::optional<checkpoint::LoadedStore> loaded;
  std::uint64_t last = 0;
  std::optional<Error> lack;
  try {
    if (auto* const snapshots = snapshots_.to_load(ranks, one_name_of(directory))) {
      last = snapshots->last_push();
      loaded = snapshots->load(wanted, checkpoint::newest_pushes(ranks, directory));
    }
  } catch (const Error& error) {
    require_lack_of_memory(error);
    lack = error;
  }
  if (!loaded) loaded = checkpoint::load(ranks, directory, wanted);
  if (lack && !loaded) throw Error(*lack);  // there may be a snapshot
  if (lack) warn(std::string(lack->what()) + "; what is on the disk is loaded");
  if (loaded) loaded->result.lost_pushes = last - std::min(last, loaded->result.pushes);
  return loaded;
}

LoadResult StoreFiles::load(const std::filesystem::path& directory, const LoadOptions& options) {
  const std::string owner = owner_of_residuals(store_.compression, *group_);
  agree_on(group_->engine(), collectives::Verb::load, "load of " + directory.string(),
           Digest().add(digest_of(directory, options)).add(std::string_view(owner)).value());
  Communicator ranks(group_);
  finish_copy(ranks);
  std::optional<checkpoint::LoadedStore> loaded = read_newest(ranks, directory, options, owner);
  if (!loaded && options.may_be_absent) return {};

  std::vector<Entry> created;
  std::vector<Entry*> entries;
  std::vector<std::byte*> replicas;
  std::optional<HostCopies> host_copies;
  std::optional<StagedStates> states;
  std::optional<StagedResiduals> residuals;
  throw_together(group_->engine(), "load", [&] {
    if (!loaded) throw Error(ErrorCode::io, "there is no checkpoint in " + directory.string());
    const Header& header = loaded->weights.header();
    if (store_.table.size() == 0) {
      created = make_entries(header, *group_);
      for (Entry& entry : created) entries.push_back(&entry);
    } else {
      entries = match(header, store_.table);
    }
    host_copies.emplace(*group_, entries);
    for (Entry* entry : entries) replicas.push_back(entry->replica.bytes());
    residuals.emplace(*loaded, entries, owner, group_->topology().size);
    if (!loads_states(loaded->optimizer.has_value(), store_.rule.optimizer(),
                      options.weights_only)) {
      return;
    }
    states.emplace(*group_, loaded->optimizer->header(), store_.rule, entries,
                   options.other_options);
  });

  Communicator& readers = loaded->readers;
  if (states) loaded->optimizer->deliver(readers, states->destinations());
  residuals->deliver(readers, ranks.rank());
  loaded->weights.deliver(readers, replicas);  // last: until here no value of the store has changed
  for (Entry* entry : entries) {
    entry->updates = 0;
    entry->states.clear();
  }
  if (store_.rule.scaler != nullptr) store_.rule.scaler->reset();
  residuals->commit();
  if (states) states->commit();
  fail_together(group_->engine(), [&] {
    host_copies->write_back();
    for (Entry& entry : created) store_.table.insert(std::move(entry));
  });
  host_copies.reset();
  store_.table.recount();
  remember(directory, loaded->result, options.weights_only);
  loaded->result.reset_residuals = residuals->refusal();
  if (ranks.rank() == 0) log_load(group_->log(), directory, loaded->result);
  return loaded->result;
}

/// Remembers a generation that is known to be whole. One with good weights may have damaged states,
/// so it does not replace an older generation that is known as a whole; a newer one has been passed
/// over.
void StoreFiles::remember(const std::filesystem::path& directory, const LoadResult& loaded,
                          bool weights_only) {
  snapshots_.set_pushes(loaded.pushes);
  if (loaded.from_memory) return;
  std::uint64_t& good = good_[one_name_of(directory)];
  if (!weights_only || good == 0 || good > loaded.generation) good = loaded.generation;
}

void StoreFiles::save_optimizer_states(const std::filesystem::path& path) {
  const std::vector<Entry*> entries = store_.table.in_order();
  std::optional<HostCopies> host_copies;
  Content content;
  throw_together(group_->engine(), "save_optimizer_states", [&] {
    host_copies.emplace(*group_, entries);
    require_optimizer();
    content = optimizer_content(store_.rule, entries);
  });
  agree_on(group_->engine(), collectives::Verb::save, "save_optimizer_states to " + path.string(),
           digest_of(path, entries, store_.rule, {}));
  Communicator ranks(group_);
  checkpoint::save_file(ranks, path, content);
}

void StoreFiles::load_optimizer_states(const std::filesystem::path& path,
                                       const LoadOptions& options) {
  agree_on(group_->engine(), collectives::Verb::load, "load_optimizer_states of " + path.string(),
           digest_of(path, options));
  Communicator ranks(group_);
  const checkpoint::TensorFile file = checkpoint::load_file(ranks, path);
  const std::vector<Entry*> entries = store_.table.in_order();
  std::optional<HostCopies> host_copies;
  std::optional<StagedStates> states;
  throw_together(group_->engine(), "load_optimizer_states", [&] {
    host_copies.emplace(*group_, entries);
    require_optimizer();
    states.emplace(*group_, file.header(), store_.rule, entries, options.other_options);
  });
  file.deliver(ranks, states->destinations());
  states->commit();
  store_.table.recount();
  fail_together(group_->engine(), [&] { host_copies->write_back(); });
}

}  // namespace tutti
