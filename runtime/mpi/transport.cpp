// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/transport.hpp"

#include <new>

#include "tutti/mpi.hpp"

#include "runtime/mpi/session.hpp"

namespace tutti::mpi {

namespace {
constexpr int kNoticeTag = 100;
constexpr int kTagsPerGroup = 128;

/// The largest tag that this MPI takes.
int tag_limit() {
  int* most = nullptr;
  int found = 0;
  check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&most), &found),
        "MPI_Comm_get_attr of MPI_TAG_UB");
  constexpr int kPromised = 32767;  // by the standard
  return found != 0 ? *most : kPromised;
}

}  // namespace

MpiTransport::MpiTransport(MPI_Comm comm) : MpiTransport(comm, {}, 0) {}

/// Groups share a communicator: making one of MPI's own is a collective call without a deadline,
/// and freeing it, too.
MpiTransport::MpiTransport(MPI_Comm comm, std::vector<int> members, int number)
    : comm_(comm), members_(std::move(members)), first_tag_(number * kTagsPerGroup) {
  const int groups = tag_limit() / kTagsPerGroup;
  if (number >= groups) {
    throw Error(ErrorCode::invalid_argument, "this is group " + std::to_string(number) +
                                                 " of its job, and this MPI has tags for " +
                                                 std::to_string(groups) +
                                                 "; make groups once and keep them");
  }
  incoming_ = new collectives::Notice;
  const Turn turn;
  listen();
}

std::unique_ptr<collectives::Transport> MpiTransport::for_group(const std::vector<int>& members,
                                                                int number) const {
  std::vector<int> ranks;
  for (const int member : members) ranks.push_back(in_comm(member));
  return std::make_unique<MpiTransport>(comm_, std::move(ranks), number);
}

MpiTransport::~MpiTransport() {
  if (!is_running()) return;
  const Turn turn;
  MPI_Cancel(&listening_);
  if (MPI_Wait(&listening_, MPI_STATUS_IGNORE) == MPI_SUCCESS) delete incoming_;
}

void MpiTransport::listen() {
  check(MPI_Irecv(incoming_, sizeof *incoming_, MPI_BYTE, MPI_ANY_SOURCE, first_tag_ + kNoticeTag,
                  comm_, &listening_),
        "MPI_Irecv of a notice");
}

collectives::Transport::Request MpiTransport::keep(MPI_Request request) {
  if (free_.empty()) {
    requests_.push_back(request);
    return static_cast<Request>(requests_.size()) - 1;
  }
  const Request index = free_.back();
  free_.pop_back();
  requests_[index] = request;
  return index;
}

collectives::Transport::Request MpiTransport::send(int to_rank, int tag,
                                                   std::span<const std::byte> bytes) {
  const Turn turn;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, in_comm(to_rank),
                  first_tag_ + tag, comm_, &request),
        [&] {
          return "MPI_Isend of " + std::to_string(bytes.size()) + " bytes to rank " +
                 std::to_string(to_rank);
        });
  return keep(request);
}

collectives::Transport::Request MpiTransport::receive(int from_rank, int tag,
                                                      std::span<std::byte> bytes) {
  const Turn turn;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Irecv(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, in_comm(from_rank),
                  first_tag_ + tag, comm_, &request),
        [&] {
          return "MPI_Irecv of " + std::to_string(bytes.size()) + " bytes from rank " +
                 std::to_string(from_rank);
        });
  return keep(request);
}

void MpiTransport::make_lane(const std::vector<int>& ranks) {
  if (ranks.empty()) return;
  const Turn turn;
  std::vector<int> members;
  for (const int rank : ranks) members.push_back(in_comm(rank));
  MPI_Group all = MPI_GROUP_NULL;
  MPI_Group lane = MPI_GROUP_NULL;
  check(MPI_Comm_group(comm_, &all), "MPI_Comm_group");
  check(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &lane),
        "MPI_Group_incl");
  check(MPI_Comm_create_group(comm_, lane, first_tag_ + kNoticeTag + 1, &lane_),
        "MPI_Comm_create_group");
  check(MPI_Group_free(&lane), "MPI_Group_free");
  check(MPI_Group_free(&all), "MPI_Group_free");
  MPI_Comm_set_errhandler(lane_, MPI_ERRORS_RETURN);
  free_at_finalize(lane_);
}

collectives::Transport::Request MpiTransport::allreduce(std::byte* data, std::size_t count,
                                                        DType dtype, ReduceOp op) {
  const Turn turn;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallreduce(MPI_IN_PLACE, data, static_cast<int>(count), mpi_datatype(dtype),
                       mpi_operation(op), lane_, &request),
        [&] { return "MPI_Iallreduce of " + std::to_string(count) + " elements"; });
  return keep(request);
}

bool MpiTransport::done(Request request) {
  const Turn turn;
  int complete = 0;
  check(MPI_Test(&requests_[request], &complete, MPI_STATUS_IGNORE), "MPI_Test");
  if (complete == 0) return false;
  free_.push_back(request);
  return true;
}

void MpiTransport::progress() {
  const Turn turn;
  int found = 0;
  check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &found, MPI_STATUS_IGNORE), "MPI_Iprobe");
}

/// The notice is sent from memory that is never freed: its receiver may never receive it. Without
/// memory for it the others learn of the failure by their deadline.
void MpiTransport::notify(int to_rank, const collectives::Notice& notice) noexcept {
  const Turn turn;
  if (!is_running()) return;
  MPI_Request request = MPI_REQUEST_NULL;
  const auto* kept = new (std::nothrow) collectives::Notice(notice);
  if (kept == nullptr) return;
  if (MPI_Isend(kept, sizeof *kept, MPI_BYTE, in_comm(to_rank), first_tag_ + kNoticeTag, comm_,
                &request) == MPI_SUCCESS) {
    MPI_Request_free(&request);
  }
}

std::optional<collectives::Notice> MpiTransport::poll_notice() {
  const Turn turn;
  int complete = 0;
  check(MPI_Test(&listening_, &complete, MPI_STATUS_IGNORE), "MPI_Test of a notice");
  if (complete == 0) return std::nullopt;
  const collectives::Notice notice = *incoming_;
  listen();
  return notice;
}

}  // namespace tutti::mpi

namespace tutti {

MPI_Datatype mpi_datatype(DType dtype) noexcept {
  switch (dtype) {
    case DType::float16:
    case DType::bfloat16:
      return MPI_UINT16_T;
    case DType::float32:
      return MPI_FLOAT;
    case DType::float64:
      return MPI_DOUBLE;
    case DType::int8:
      return MPI_INT8_T;
    case DType::uint8:
      return MPI_UINT8_T;
    case DType::int32:
      return MPI_INT32_T;
    case DType::int64:
      return MPI_INT64_T;
  }
  return MPI_DATATYPE_NULL;
}

MPI_Op mpi_operation(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
      return MPI_SUM;
    case ReduceOp::prod:
      return MPI_PROD;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::avg:
      return MPI_OP_NULL;
  }
  return MPI_OP_NULL;
}

}  // namespace tutti
