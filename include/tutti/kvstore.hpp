// SPDX-License-Identifier: Apache-2.0
// The replicated key-value store.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/arguments.hpp"
#include "tutti/checkpoint.hpp"
#include "tutti/communicator.hpp"
#include "tutti/compression.hpp"
#include "tutti/error.hpp"
#include "tutti/export.h"
#include "tutti/optimizer.hpp"
#include "tutti/pending.hpp"
#include "tutti/row_sparse.hpp"
#include "tutti/scaling.hpp"
#include "tutti/statistics.hpp"
#include "tutti/verify.hpp"

namespace tutti {

/// A rule of update of the program's own. Called once per distinct key of a push as (key, merged,
/// stored): `merged` is the sum over the values and ranks, `stored` is changed in place. Runs on
/// every rank, on equal data: it must do the same everywhere. It may pull and view; a collective
/// call inside it is an error. If it throws, the store fails, and every rank throws an Error
/// (user_code); on the rank where it threw, std::rethrow_if_nested gives the original.
using Updater = std::function<void(const Key& key, ConstTensorView merged, TensorView stored)>;

enum class Cast : bool { no, yes };

struct PullOptions {
  Cast cast = Cast::no;  ///< converts elements to the outputs' dtypes
  /// Leaves the outputs of row-sparse keys untouched, with a warning once per key. With false they
  /// receive the whole table.
  bool ignore_sparse = true;
  int priority = 0;  ///< accepted and has no effect: a pull sends no message
};

/// Every rank holds a replica of every value. A push sums over values, devices and ranks, then
/// runs the updater on each rank's replica; a pull copies from this rank's replica, without a
/// message.
///
/// Order   calls marked "collective" are made by every rank in the same order with the same keys,
///         shapes and dtypes (in a "local" or "device" store there is one rank).
/// Errors  thrown as Error. A collective call that is invalid on one rank or differs between ranks
///         throws on every rank, names ranks and keys, and changes nothing. A failed store
///         (recoverable() is false) throws from every call that changes, moves or reads values.
class TUTTI_API KVStore {
 public:
  /// Types: "local" and "device" are this process alone; "dist" is all ranks of the job. MXNet's
  /// other names are aliases, such as dist_sync. Case does not matter. Collective for "dist".
  /// Errors  invalid_argument: an unknown type, on this rank; the text lists the known ones.
  static KVStore create(std::string_view type,
                        const Settings& settings = Settings::from_environment());
  /// A "dist" store over a communicator that exists already. If any store over it makes
  /// asynchronous pushes, every rank creates its stores in one order. Creating one then waits for
  /// the pushes under way.
  static KVStore create(const Communicator& communicator);

  /// A store that was moved from can be destroyed and assigned to; its calls throw
  /// invalid_argument, and those that are noexcept end the program.
  KVStore(KVStore&&) noexcept;
  KVStore& operator=(KVStore&&) noexcept;
  ~KVStore();

  /// Stores the first value of each key: rank 0's value, whatever the other ranks hold. Once per
  /// key. Collective. Errors: invalid_argument for a key that exists.
  void init(const Keys& keys, const Values& values);
  /// Stores row-sparse keys (row_sparse.hpp), from tables, or as one table of zeros, which takes no
  /// time or memory for its size unless it is on a GPU. Collective. Errors: also for a scalar, and
  /// for zeros on a GPU in a "local" store.
  void init_row_sparse(const Keys& keys, const Values& values);
  void init_row_sparse(const Key& key, const Shape& shape, DType dtype = DType::float32,
                       Device device = cpu());

  /// Sums each key's values over the list and over all ranks, then runs the updater (ASSIGN unless
  /// one is set). Collective; the list is one fused operation. A key that occurs several times is
  /// one key whose values are summed. Keys are updated in ascending order (integers) or in the
  /// order of their init (strings). On return the values may be reused.
  ///
  /// An optimizer's clip_global_norm is for the sums of all keys of one push together: the root of
  /// the sum of the squares of their elements, times |rescale_grad| / the loss scale. So push all
  /// keys by one call. With it, or with loss_scale, a push whose sums are not finite (float64: or
  /// above 1e154) updates nothing. Both are for dense keys without compression, and not for
  /// push_async(): a push is then a blocking one whatever Settings::asynchronous says.
  ///
  /// With Settings::asynchronous (TUTTI_ASYNC=1) this is push_async() with `priority`, if the keys
  /// are in the host's memory; values are copied at once, also from GPUs. pull() and view() wait
  /// for their keys, so a view from before the push must be asked for again. The error of a push
  /// comes out where ranks are at one point of the program: a pull or view of the key throws it,
  /// once, and so does the next collective call that waits, on all ranks, whoever has pulled. The
  /// pushes after it are made. Without this setting, `priority` has no effect.
  void push(const Keys& keys, const Values& values, int priority = 0);
  /// Pushes rows to row-sparse keys. Ranks may push different rows, or none: RowSparse{}.
  /// Errors  invalid_argument: ids that are no integers or no rows of the table, rows of another
  ///         shape or dtype, a dense key, an updater or optimizer that takes no rows.
  void push(const Keys& keys, const RowSparseValues& values, int priority = 0);

  /// A push that goes on while the program computes; it returns at once. Ranks may push keys in any
  /// order, each in its own; the pushes of one key keep their order. The bits are those of push(),
  /// key by key: a thread of the library, or one of the program that waits, carries out the pushes
  /// that all ranks have made, the keys of a higher priority first, several as one operation.
  /// Updaters run on that thread, and wait for no push. A learning-rate schedule counts pushes in
  /// the order in which they are carried out, which is the same on all ranks. Compressed keys are
  /// pushed one by one.
  ///
  /// pull(), view() and the updates of a key wait for its pushes. Every other collective call of
  /// the store waits for all of them, and so do stop_requested(), optimizer(), statistics() and
  /// row_sparse_pull(). All ranks must have made the same pushes before such a call, and before the
  /// store is destroyed, which does not wait: pushes under way are then given up, with a warning,
  /// and fail the group.
  /// Errors  at once, on this rank alone: an unknown key, numbers that do not fit, no memory for a
  ///         copy, an optimizer with clip_global_norm or loss_scale, MPI without
  ///         MPI_THREAD_SERIALIZED in a job of several nodes. At wait(), on all ranks: those of
  ///         push(), and invalid_argument for keys or values on a GPU; the other keys of a list are
  ///         pushed. A key that another rank does not push is a timeout, which names key and ranks.
  Pending push_async(const Keys& keys, const Values& values, const AsyncOptions& options = {});
  /// A push_async() whose outputs get the new value of their key before the call is complete. They
  /// belong to the store until then.
  Pending pushpull_async(const Keys& keys, const Values& values, const Outputs& outputs,
                         const AsyncOptions& options = {});

  /// Copies this rank's replica into every output of the key, once its asynchronous pushes are
  /// complete. Local.
  /// Errors  invalid_argument: unknown key, other shape, other dtype without Cast::yes.
  void pull(const Keys& keys, const Outputs& outputs, Cast cast = Cast::no) const;
  void pull(const Keys& keys, const Outputs& outputs, const PullOptions& options) const;

  /// Copies rows of this rank's replica: each requested row once, ascending. `row_ids` are
  /// integers of any type, shape and order; one list for all outputs, or one for each. Local.
  /// An output's tensors of another size are made anew on the device where they were.
  /// Errors  invalid_argument: a dense key, ids that are no integers or no rows of the table.
  void row_sparse_pull(const Keys& keys, const RowSparseOutputs& outputs, const Values& row_ids,
                       int priority = 0) const;

  /// This rank's replica, without a copy. Its content is valid until the next push of the key.
  [[nodiscard]] ConstTensorView view(const Key& key) const;

  /// A push, then a pull of the updated values. Without `outputs` they are written over `values`.
  void pushpull(const Keys& keys, const Values& values, const Outputs& outputs, int priority = 0);
  void pushpull(const Keys& keys, const Outputs& values, int priority = 0);

  /// An init, then a pull. Collective. Errors: those of init() and pull(), on all ranks; no key
  /// exists then.
  void broadcast(const Keys& keys, const Values& values, const Outputs& outputs);

  /// Replaces the updater; nothing stored changes until the next push. `rows` updates row-sparse
  /// keys, whose push is an error without it. Call it on every rank.
  void set_updater(Updater updater, RowSparseUpdater rows = nullptr);
  /// Makes the store run an optimizer as its updater, with new state. Call it on every rank.
  /// Errors  invalid_argument: none, or one with more states than Optimizer::kMostStates.
  void set_optimizer(std::shared_ptr<Optimizer> optimizer);
  /// The optimizer in use. Errors: invalid_argument if there is none.
  [[nodiscard]] Optimizer& optimizer() const;

  /// The factor for the loss before the next push: 1 without the option loss_scale. The scale and
  /// its counters belong to the store: set_optimizer() starts them, checkpoints keep them. Both
  /// calls are local.
  [[nodiscard]] double loss_scale() const { return gradient_scaling().loss_scale; }
  /// The account of the gradients of the last push, with clip_global_norm or loss_scale.
  [[nodiscard]] GradientScaling gradient_scaling() const;

  /// Compresses the data that later pushes send; init and pull are never compressed. All residuals
  /// start at zero again, whether the compression is another one or the same. Dense keys that are
  /// pushed under a compression are float32; row-sparse keys are sent exactly. The text is that of
  /// compression::create: "2bit,threshold=0.5". Call it on every rank.
  /// Errors  invalid_argument: an unknown name or option, a value out of its range, Leg::between
  ///         with TUTTI_REPRODUCIBLE=1. A push that is compressed otherwise on another rank, or has
  ///         a key that is not float32, throws on every rank and changes no residual.
  void set_gradient_compression(const Compression& compression);
  void set_gradient_compression(std::string_view compression);

  /// Saves all values, the optimizer's states and counts, residuals, and `metadata` as a new
  /// generation in a directory, and keeps the one before. Whenever the process or the machine
  /// stops, load() finds a whole one: the new generation or the one before. Files are safetensors,
  /// written in parallel by all ranks that share a file system with rank 0. Collective. Nothing
  /// else may use the directory meanwhile; "local" stores of several processes take one each.
  /// Errors  io (no space, no permission, no parent folder), mismatch if ranks save to different
  ///         directories, invalid_argument for a key or metadata that is not UTF-8, a key named
  ///         "__metadata__", or so many keys that a file's header would exceed 100 MB, divergence
  ///         as verify(). Older generations stay, and the store goes on.
  void save(const std::filesystem::path& directory, const Metadata& metadata = {});
  /// A save() whose files are written while the program goes on: see snapshot.hpp. Collective.
  Pending save_async(const std::filesystem::path& directory, const Metadata& metadata = {});
  /// Takes back the newest generation, or snapshot (snapshot.hpp), that is not damaged, into any
  /// type of store with any number of ranks; a warning and the result name those passed over. All
  /// is read and verified before anything changes. A store without keys gets those of the
  /// checkpoint; else keys, shapes and dtypes must be the same. The optimizer must be set before,
  /// to one of the same name and options (see LoadOptions). The same compression, set before, on
  /// the same ranks takes the residuals, too; else they start at zero, which warning and result
  /// say. Collective.
  /// Errors  io: no checkpoint, no permission, a later format; corrupt_file: every generation is
  ///         damaged; invalid_argument: other keys or another optimizer. Nothing has changed then.
  LoadResult load(const std::filesystem::path& directory, const LoadOptions& options = {});

  /// Saves and loads the optimizer's states and counts alone, in one file, which is replaced in one
  /// step. The store must hold the same keys when it loads; of the options, other_options counts.
  /// Collective. Errors: as above.
  void save_optimizer_states(const std::filesystem::path& path);
  void load_optimizer_states(const std::filesystem::path& path, const LoadOptions& options = {});

  /// Compares all replicas and optimizer states between ranks, also of keys that are no longer
  /// pushed; save() does so first, unless TUTTI_VERIFY=off. A push compares a part of its keys (see
  /// Settings::verify). Where more than half of the ranks agree, the others take over what these
  /// hold; a warning on standard error names rank, key and elements. Collective.
  /// Errors  divergence: no majority; every rank throws, nothing has changed; load() is possible.
  VerifyResult verify();

  /// The cost of this rank's calls so far, also of other stores on the communicator. Local.
  [[nodiscard]] Statistics statistics() const;

  /// A tensor in the store's memory: pushed without any copy. Its elements are zero. Local.
  [[nodiscard]] Tensor allocate(Shape shape, DType dtype = DType::float32);

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int num_workers() const noexcept;
  /// The keys that the store holds, ascending; after a load() those of the checkpoint. Local.
  [[nodiscard]] std::vector<Key> keys() const;
  /// The name that the store was created with, aliases resolved.
  [[nodiscard]] std::string_view type() const noexcept;
  /// True for "optimizer": the store can run one, so workers need not.
  [[nodiscard]] bool is_capable(std::string_view capability) const noexcept;

  /// True once a signal (see PreemptionSignals) or request_stop() on any rank has asked the job to
  /// stop: the same on all ranks after the same collective call. Ask it after each push. It waits
  /// for asynchronous calls. Local.
  [[nodiscard]] bool stop_requested() const;
  /// Asks all ranks to stop; they know after the next collective call. Waits for nothing. Local.
  void request_stop() noexcept;

  /// Returns when every rank has called it. Collective.
  void barrier();
  /// Runs `body` on every rank; if it throws on any, every rank throws the error of the lowest such
  /// rank. Collective.
  void agree(const std::function<void()>& body);

 private:
  friend class StoreAccess;  // the implementation: runtime/store/kvstore.cpp
  class Impl;
  explicit KVStore(std::unique_ptr<Impl> impl);
  [[nodiscard]] Impl& impl() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti
