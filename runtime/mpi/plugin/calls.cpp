// SPDX-License-Identifier: Apache-2.0
// The calls of one kind of MPI. Compiled once for each kind that the build knows; makes no
// decisions.
#include "runtime/mpi/plugin/calls.hpp"

#include <cstring>
#include <mpi.h>
#include <new>
#include <numeric>

#include "tutti/mpi.hpp"

namespace tutti::mpi {

namespace {

static_assert(sizeof(MPI_Comm) <= sizeof(Comm) && sizeof(MPI_Request) <= sizeof(Request));
static_assert(MPI_SUCCESS == 0);

MPI_Comm native(const Comm& comm) noexcept {
  MPI_Comm handle = MPI_COMM_NULL;
  std::memcpy(&handle, comm.bytes.data(), sizeof(MPI_Comm));
  return handle;
}

Comm wrapped(MPI_Comm handle) noexcept {
  Comm comm;
  std::memcpy(comm.bytes.data(), &handle, sizeof(MPI_Comm));
  return comm;
}

/// Returns the memory of a communicator as an MPI_Comm, whose address MPI may keep while it makes
/// it.
MPI_Comm* in_place(Comm* comm) noexcept { return reinterpret_cast<MPI_Comm*>(comm->bytes.data()); }
MPI_Request* in_place(Request* request) noexcept {
  return reinterpret_cast<MPI_Request*>(request->bytes.data());
}

/// An attribute of MPI_COMM_SELF, used as a callback: MPI_Finalize deletes these attributes before
/// anything else, while messages can still be sent.
struct AtFinalize {
  void (*body)(void*) noexcept;
  void* argument;
};

int call_body(MPI_Comm, int, void* value, void*) {
  const auto* call = static_cast<const AtFinalize*>(value);
  call->body(call->argument);
  delete call;
  return MPI_SUCCESS;
}

/// A group of MPI's ranks, which the destructor frees.
class Members {
 public:
  explicit Members(MPI_Comm comm) : code(MPI_Comm_group(comm, &group)) {}
  ~Members() {
    if (group != MPI_GROUP_NULL) MPI_Group_free(&group);
  }
  Members(const Members&) = delete;
  Members& operator=(const Members&) = delete;

  MPI_Group group = MPI_GROUP_NULL;
  int code;
};

int rank_or_any(int rank) { return rank == kAnyRank ? MPI_ANY_SOURCE : rank; }
int tag_or_any(int tag) { return tag == kAnyTag ? MPI_ANY_TAG : tag; }

class CompiledCalls final : public Calls {
 public:
  // --- the library ---
  MpiAbi abi() const noexcept override { return kMpiAbi; }

  std::string version() const override {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    return {text, static_cast<std::size_t>(length)};
  }

  std::string header_version() const override {
#if defined(MPI_ABI_VERSION) && MPI_ABI_VERSION > 0
    return "MPI's standard ABI " + std::to_string(MPI_ABI_VERSION) + "." +
           std::to_string(MPI_ABI_SUBVERSION);
#elif defined(OMPI_MAJOR_VERSION)
    return "Open MPI v" + std::to_string(OMPI_MAJOR_VERSION) + "." +
           std::to_string(OMPI_MINOR_VERSION) + "." + std::to_string(OMPI_RELEASE_VERSION);
#elif defined(I_MPI_VERSION)
    return std::string("Intel(R) MPI Library ") + I_MPI_VERSION;
#elif defined(MVAPICH_VERSION)
    return std::string("MVAPICH ") + MVAPICH_VERSION;
#elif defined(MVAPICH2_VERSION)
    return std::string("MVAPICH2 ") + MVAPICH2_VERSION;
#else
    return std::string("MPICH ") + MPICH_VERSION;
#endif
  }

  std::string error_text(int code) const override {
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return text;
  }

  bool is_initialized() const noexcept override {
    int result = 0;
    MPI_Initialized(&result);
    return result != 0;
  }

  bool is_finalized() const noexcept override {
    int result = 0;
    MPI_Finalized(&result);
    return result != 0;
  }

  int initialize(ThreadLevel wanted) const override {
    int provided = 0;
    return MPI_Init_thread(nullptr, nullptr, kLevels[static_cast<std::size_t>(wanted)], &provided);
  }

  int thread_level(ThreadLevel* level) const override {
    int found = MPI_THREAD_SINGLE;
    const int code = MPI_Query_thread(&found);
    *level = ThreadLevel::single;
    for (std::size_t i = 0; i < kLevels.size(); ++i) {
      if (found >= kLevels[i]) *level = static_cast<ThreadLevel>(i);
    }
    return code;
  }

  int finalize() const override { return MPI_Finalize(); }
  void abort(int exit_code) const override { MPI_Abort(MPI_COMM_WORLD, exit_code); }

  int call_at_finalize(void (*body)(void*) noexcept, void* argument) const override {
    int key = MPI_KEYVAL_INVALID;
    const int code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, call_body, &key, nullptr);
    if (code != MPI_SUCCESS) return code;
    return MPI_Comm_set_attr(MPI_COMM_SELF, key, new AtFinalize{body, argument});
  }

  // --- communicators ---
  Comm world() const noexcept override { return wrapped(MPI_COMM_WORLD); }

  Comm comm_at(const void* address) const noexcept override {
    return wrapped(*static_cast<const MPI_Comm*>(address));
  }

  void store_comm(const Comm& comm, void* address) const noexcept override {
    *static_cast<MPI_Comm*>(address) = native(comm);
  }

  bool is_null(const Comm& comm) const noexcept override { return native(comm) == MPI_COMM_NULL; }

  int is_intercommunicator(const Comm& comm, bool* result) const override {
    int between = 0;
    const int code = MPI_Comm_test_inter(native(comm), &between);
    *result = between != 0;
    return code;
  }

  int rank(const Comm& comm, int* rank) const override { return MPI_Comm_rank(native(comm), rank); }
  int size(const Comm& comm, int* size) const override { return MPI_Comm_size(native(comm), size); }

  int duplicate(const Comm& comm, Comm* copy) const override {
    return MPI_Comm_dup(native(comm), in_place(copy));
  }

  int start_duplicate(const Comm& comm, Comm* copy, Request* request) const override {
    return MPI_Comm_idup(native(comm), in_place(copy), in_place(request));
  }

  int return_errors(const Comm& comm) const override {
    return MPI_Comm_set_errhandler(native(comm), MPI_ERRORS_RETURN);
  }

  int free(Comm* comm) const override { return MPI_Comm_free(in_place(comm)); }

  int ranks_in_world(const Comm& comm, std::vector<int>* ranks) const override {
    const Members members(native(comm));
    const Members world(MPI_COMM_WORLD);
    if (members.code != MPI_SUCCESS) return members.code;
    if (world.code != MPI_SUCCESS) return world.code;
    int size = 0;
    int result = MPI_UNEQUAL;
    int code = MPI_Group_size(members.group, &size);
    if (code == MPI_SUCCESS) code = MPI_Group_compare(members.group, world.group, &result);
    if (code != MPI_SUCCESS) return code;
    ranks->clear();
    if (result == MPI_IDENT) return code;
    std::vector<int> own(static_cast<std::size_t>(size));
    std::iota(own.begin(), own.end(), 0);
    ranks->resize(own.size());
    return MPI_Group_translate_ranks(members.group, size, own.data(), world.group, ranks->data());
  }

  int split_host(const Comm& comm, int own_rank, Comm* host) const override {
    return MPI_Comm_split_type(native(comm), MPI_COMM_TYPE_SHARED, own_rank, MPI_INFO_NULL,
                               in_place(host));
  }

  int split(const Comm& comm, int own_rank, bool takes_part, Comm* part) const override {
    MPI_Comm made = MPI_COMM_NULL;
    const int code = MPI_Comm_split(native(comm), takes_part ? 0 : MPI_UNDEFINED, own_rank, &made);
    *part = made == MPI_COMM_NULL ? Comm{} : wrapped(made);
    return code;
  }

  int create_group(const Comm& comm, const std::vector<int>& ranks, int tag,
                   Comm* group) const override {
    const Members all(native(comm));
    if (all.code != MPI_SUCCESS) return all.code;
    MPI_Group some = MPI_GROUP_NULL;
    int code = MPI_Group_incl(all.group, static_cast<int>(ranks.size()), ranks.data(), &some);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Comm_create_group(native(comm), some, tag, in_place(group));
    MPI_Group_free(&some);
    return code;
  }

  int tag_limit(int* most) const override {
    int* limit = nullptr;
    int found = 0;
    const int code =
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&limit), &found);
    constexpr int kPromised = 32767;  // the standard's minimum
    *most = code == MPI_SUCCESS && found != 0 ? *limit : kPromised;
    return code;
  }

  // --- nonblocking collectives ---
  int start_barrier(const Comm& comm, Request* request) const override {
    return MPI_Ibarrier(native(comm), in_place(request));
  }

  int start_minimum(const std::uint64_t* own, std::uint64_t* least, int count, const Comm& comm,
                    Request* request) const override {
    return MPI_Iallreduce(own, least, count, MPI_UINT64_T, MPI_MIN, native(comm),
                          in_place(request));
  }

  int start_allgather(const void* own, int bytes, void* all, const Comm& comm,
                      Request* request) const override {
    return MPI_Iallgather(own, bytes, MPI_BYTE, all, bytes, MPI_BYTE, native(comm),
                          in_place(request));
  }

  int start_allgather_parts(std::span<const std::byte> own, void* all,
                            const std::vector<int>& bytes, const std::vector<int>& begins,
                            const Comm& comm, Request* request) const override {
    return MPI_Iallgatherv(own.data(), static_cast<int>(own.size()), MPI_BYTE, all, bytes.data(),
                           begins.data(), MPI_BYTE, native(comm), in_place(request));
  }

  int start_broadcast(void* data, int bytes, int root, const Comm& comm,
                      Request* request) const override {
    return MPI_Ibcast(data, bytes, MPI_BYTE, root, native(comm), in_place(request));
  }

  int start_allreduce(void* data, int count, DType dtype, ReduceOp op, const Comm& comm,
                      Request* request) const override {
    return MPI_Iallreduce(MPI_IN_PLACE, data, count, mpi_datatype(dtype), mpi_operation(op),
                          native(comm), in_place(request));
  }

  // --- messages ---
  int send(const void* data, int bytes, int to, int tag, const Comm& comm,
           Request* request) const override {
    return MPI_Isend(data, bytes, MPI_BYTE, to, tag, native(comm), in_place(request));
  }

  int receive(void* data, int bytes, int from, int tag, const Comm& comm,
              Request* request) const override {
    return MPI_Irecv(data, bytes, MPI_BYTE, rank_or_any(from), tag_or_any(tag), native(comm),
                     in_place(request));
  }

  int probe(int* from, int tag, const Comm& comm, bool* found) const override {
    MPI_Status status;
    int is_there = 0;
    const int code =
        MPI_Iprobe(rank_or_any(*from), tag_or_any(tag), native(comm), &is_there, &status);
    *found = is_there != 0;
    if (is_there != 0) *from = status.MPI_SOURCE;
    return code;
  }

  int wait_for_message(int from, int tag, const Comm& comm, int* bytes) const override {
    MPI_Status status;
    const int code = MPI_Probe(rank_or_any(from), tag_or_any(tag), native(comm), &status);
    return code != MPI_SUCCESS ? code : MPI_Get_count(&status, MPI_BYTE, bytes);
  }

  int test(Request* request, bool* done) const override {
    int complete = 0;
    const int code = MPI_Test(in_place(request), &complete, MPI_STATUS_IGNORE);
    *done = complete != 0;
    return code;
  }

  int wait(Request* request) const override {
    return MPI_Wait(in_place(request), MPI_STATUS_IGNORE);
  }

  int cancel(Request* request) const override { return MPI_Cancel(in_place(request)); }
  int release(Request* request) const override { return MPI_Request_free(in_place(request)); }

 private:
  static constexpr std::array<int, 4> kLevels = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED,
                                                 MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE};
};

}  // namespace

/// Never destroyed: a store may be destroyed after all objects of main.
const Calls& compiled_calls() noexcept {
  alignas(CompiledCalls) static std::array<std::byte, sizeof(CompiledCalls)> place;
  static const Calls* const calls = new (place.data()) CompiledCalls;
  return *calls;
}

}  // namespace tutti::mpi
