// SPDX-License-Identifier: Apache-2.0
#include "runtime/preload/arguments.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/job/local_error.hpp"
#include "runtime/base/digest.hpp"
#include "runtime/preload/gpu_memory.hpp"

namespace tutti::preload {

std::string name_of(MPI_Comm comm) {
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  PMPI_Comm_get_name(comm, name, &length);
  return length == 0 ? "a communicator without a name" : name;
}

namespace {

std::string name_of_type(MPI_Datatype type) {
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  PMPI_Type_get_name(type, name, &length);
  return length == 0 ? "a derived datatype" : name;
}

}  // namespace

std::string words(const char* function, int count, MPI_Datatype type, const std::string& more,
                  MPI_Comm comm) {
  return std::string(function) + " of " + std::to_string(count) + " " + name_of_type(type) + more +
         " on " + name_of(comm);
}

namespace {

/// Its place among MPI's own operations, and its name; null for one of the program's.
std::pair<std::uint64_t, const char*> known(MPI_Op op) {
  const std::pair<MPI_Op, const char*> names[] = {
      {MPI_SUM, "MPI_SUM"},        {MPI_PROD, "MPI_PROD"},     {MPI_MIN, "MPI_MIN"},
      {MPI_MAX, "MPI_MAX"},        {MPI_LAND, "MPI_LAND"},     {MPI_LOR, "MPI_LOR"},
      {MPI_LXOR, "MPI_LXOR"},      {MPI_BAND, "MPI_BAND"},     {MPI_BOR, "MPI_BOR"},
      {MPI_BXOR, "MPI_BXOR"},      {MPI_MINLOC, "MPI_MINLOC"}, {MPI_MAXLOC, "MPI_MAXLOC"},
      {MPI_REPLACE, "MPI_REPLACE"}};
  std::uint64_t place = 0;
  for (const auto& [one, name] : names) {
    ++place;
    if (op == one) return {place, name};
  }
  return {0, nullptr};
}

/// The same for a call of C, of Fortran and with large counts, which are one to MPI.
std::string without_language(std::string_view name) {
  std::string same(name);
  for (char& letter : same) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  if (same.ends_with("_c")) same.resize(same.size() - 2);
  return same;
}

}  // namespace

std::string with(MPI_Op op) {
  const char* name = known(op).second;
  return std::string(" with ") + (name == nullptr ? "an operation of the program" : name);
}

std::uint64_t digest_of(MPI_Op op) { return known(op).first; }

std::optional<Reduction> reduction_of(const Process& process, const Elements& all) {
  const Item* item = process.datatypes.find(all.type);
  if (item == nullptr || all.count <= 0) return std::nullopt;
  const std::optional<ReduceOp> known = reduce_op(all.op, *item);
  if (!known) return std::nullopt;
  const std::size_t each = item->bytes / size_of(item->element);
  return Reduction{static_cast<std::size_t>(all.count) * each, item->element, *known};
}

const Served* served_by(Process& process, MPI_Comm comm) noexcept {
  if (comm == MPI_COMM_NULL) return nullptr;
  try {
    return process.groups.find(comm);
  } catch (const std::exception& error) {
    end_job(error, "the first call on " + name_of(comm));
  }
}

namespace {

/// True if the call's input or its output is on a GPU. All segments of one call are parts of these.
bool has_gpu_memory(std::span<const collectives::Segment> segments) {
  const auto has_input = [](const collectives::Segment& segment) {
    return segment.input != nullptr && segment.count > 0;
  };
  const auto has_output = [](const collectives::Segment& segment) {
    return segment.output != nullptr && segment.count > 0;
  };
  const auto input = std::ranges::find_if(segments, has_input);
  const auto output = std::ranges::find_if(segments, has_output);
  return (input != segments.end() && is_on_gpu(input->input)) ||
         (output != segments.end() && is_on_gpu(output->output));
}

bool run_alone(const Served& served, const collectives::Operation& operation) {
  std::unique_lock<std::mutex> call;
  if (served.calls != nullptr) call = std::unique_lock(*served.calls);
  return served.group->engine().run(operation);
}

struct Free {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }
};

}  // namespace

/// The engine may begin to copy or to sum inputs before the ranks agree: it gets zeros of the
/// host's. A rank without memory for these, or for the segments, refuses the call on all ranks.
bool run(const Served& served, const collectives::Operation& operation) {
  const bool has_segments = operation.segments.data() != nullptr;
  if (!has_segments || !has_gpu_memory(operation.segments)) return run_alone(served, operation);
  collectives::Operation declined = operation;
  // Ranks whose checks differ carry out nothing. No other rank has this one.
  declined.check = static_cast<std::uint32_t>(served.rank) + 1;
  std::size_t most = 0;
  for (const collectives::Segment& segment : operation.segments) {
    most = std::max(most, segment.count * size_of(segment.dtype));
  }
  const std::unique_ptr<std::byte, Free> zeros(
      static_cast<std::byte*>(std::calloc(std::max<std::size_t>(most, 1), 1)));
  std::vector<collectives::Segment> segments;
  static_cast<void>(collectives::caught([&] {
    if (zeros == nullptr) return;
    segments.assign(operation.segments.begin(), operation.segments.end());
    for (collectives::Segment& segment : segments) {
      if (segment.input != nullptr) segment.input = zeros.get();
      if (segment.output != nullptr) segment.output = zeros.get();
    }
  }));
  declined.segments = {segments.empty() ? nullptr : segments.data(), operation.segments.size()};
  return run_alone(served, declined);
}

int carry_out_by_mpi(const char* name, MPI_Comm comm, std::uint64_t digest,
                     collectives::FunctionRef<std::string()> describe,
                     collectives::FunctionRef<int()> by_mpi) {
  Process* running = process();
  const bool is_watched = running != nullptr && running->is_watched;
  const Served* served = is_watched ? served_by(*running, comm) : nullptr;
  if (served == nullptr) return by_mpi();
  return guarded_code(comm, [&] {
    const collectives::CountedCall counted(served->group->engine().statistics(), name);
    const std::string same_name = without_language(name);
    run_alone(*served, {.kind = collectives::Kind::barrier,
                        .digest = Digest().add(std::string_view(same_name)).add(digest).value(),
                        .segments = {},
                        .describe = describe});
    return by_mpi();
  });
}

namespace {

/// Items for MPI_Pack and MPI_Unpack. Those of MPICH 4.0 refuse the address 0, MPI_BOTTOM, from
/// which a datatype of absolute addresses is meant: here it is meant from 1, less a byte.
class FromAddress {
 public:
  FromAddress(const void* buffer, int count, MPI_Datatype type)
      : buffer_(const_cast<void*>(buffer)), count_(count), type_(type) {
    if (buffer != nullptr || count == 0) return;
    const MPI_Aint back = -1;
    code_ = PMPI_Type_create_hindexed(1, &count, &back, type, &made_);
    if (code_ == MPI_SUCCESS) code_ = PMPI_Type_commit(&made_);
    buffer_ = std::bit_cast<void*>(std::uintptr_t{1});
    count_ = 1;
    type_ = made_;
  }
  FromAddress(const FromAddress&) = delete;
  FromAddress& operator=(const FromAddress&) = delete;
  ~FromAddress() {
    if (made_ != MPI_DATATYPE_NULL) PMPI_Type_free(&made_);
  }

  [[nodiscard]] int code() const { return code_; }
  [[nodiscard]] void* buffer() const { return buffer_; }
  [[nodiscard]] int count() const { return count_; }
  [[nodiscard]] MPI_Datatype type() const { return type_; }

 private:
  void* buffer_;
  int count_;
  MPI_Datatype type_;
  MPI_Datatype made_ = MPI_DATATYPE_NULL;
  int code_ = MPI_SUCCESS;
};

}  // namespace

int unpack(std::span<const std::byte> packed, int& at, void* buffer, int count, MPI_Datatype type,
           MPI_Comm comm) {
  const FromAddress to(buffer, count, type);
  if (to.code() != MPI_SUCCESS) return to.code();
  return PMPI_Unpack(packed.data(), static_cast<int>(packed.size()), &at, to.buffer(), to.count(),
                     to.type(), comm);
}

Items::Items(const Process& process, int count, MPI_Datatype type) : count_(count), type_(type) {
  const Item* item = process.datatypes.find(type);
  are_plain_ = item != nullptr;
  if (count <= 0 || type == MPI_DATATYPE_NULL) return;
  MPI_Count each = 0;
  if (item != nullptr) {
    each = static_cast<MPI_Count>(item->bytes);
  } else if (PMPI_Type_size_x(type, &each) != MPI_SUCCESS || each <= 0) {
    return;
  }
  if (each > INT_MAX / count) return;
  bytes_ = static_cast<std::size_t>(each) * static_cast<std::size_t>(count);
}

int Items::read(const void* buffer, MPI_Comm comm, std::unique_ptr<std::byte[]>& copy,
                const std::byte*& data) const {
  data = as_bytes(buffer);
  if (are_plain_) return MPI_SUCCESS;
  copy = std::make_unique_for_overwrite<std::byte[]>(*bytes_);
  data = copy.get();
  int at = 0;
  const FromAddress from(buffer, count_, type_);
  if (from.code() != MPI_SUCCESS) return from.code();
  return PMPI_Pack(from.buffer(), from.count(), from.type(), copy.get(), static_cast<int>(*bytes_),
                   &at, comm);
}

std::byte* Items::target(void* buffer, std::unique_ptr<std::byte[]>& copy) const {
  if (are_plain_) return as_bytes(buffer);
  copy = std::make_unique_for_overwrite<std::byte[]>(*bytes_);
  return copy.get();
}

int Items::write(const std::unique_ptr<std::byte[]>& copy, void* buffer, MPI_Comm comm) const {
  if (are_plain_) return MPI_SUCCESS;
  int at = 0;
  return unpack({copy.get(), *bytes_}, at, buffer, count_, type_, comm);
}

}  // namespace tutti::preload
