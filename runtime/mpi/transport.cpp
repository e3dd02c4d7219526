// SPDX-License-Identifier: Apache-2.0
#include "runtime/mpi/transport.hpp"

#include <new>
#include <vector>

#include "runtime/mpi/session.hpp"

namespace tutti::mpi {

namespace {
constexpr int kNoticeTag = 100;
constexpr int kTagsPerGroup = 128;
constexpr int kTagOfNone = kTagsPerGroup - 1;  // no message has it
}  // namespace

int MpiTransport::most_groups() {
  int limit = 0;
  const Turn turn("MPI_Comm_get_attr");
  check(calls().tag_limit(&limit), "MPI_Comm_get_attr of MPI_TAG_UB");
  return limit / kTagsPerGroup;
}

MpiTransport::MpiTransport(const Comm& comm, int num_nodes, int number)
    : MpiTransport(
          comm,
          Members{.number = number, .num_nodes = num_nodes, .maker = std::this_thread::get_id()}) {}

/// Groups share a communicator, because making one of MPI's own is a collective call without a
/// deadline, and so is freeing it.
MpiTransport::MpiTransport(const Comm& comm, Members members)
    : mpi_(calls()),
      comm_(comm),
      members_(std::move(members)),
      first_tag_(members_.number * kTagsPerGroup) {
  if (!has_messages()) return;
  const int groups = most_groups();
  if (members_.number >= groups) {
    throw Error(ErrorCode::invalid_argument, "this is group " + std::to_string(members_.number) +
                                                 " of its job, and this MPI has tags for " +
                                                 std::to_string(groups) +
                                                 "; make groups once and keep them");
  }
  incoming_ = new collectives::Notice;
  const Turn turn("MPI_Irecv");
  listen();
}

/// The thread that made the first of these groups called MPI then, so it may do so again.
std::unique_ptr<collectives::Transport> MpiTransport::for_group(const std::vector<int>& members,
                                                                int number, int num_nodes) const {
  Members of_group{.number = number, .num_nodes = num_nodes, .maker = members_.maker};
  for (const int member : members) of_group.ranks.push_back(in_comm(member));
  return std::unique_ptr<MpiTransport>(new MpiTransport(comm_, std::move(of_group)));
}

MpiTransport::~MpiTransport() {
  if (!has_messages() || !is_running()) return;
  const Turn turn("MPI_Cancel", std::nothrow);
  if (!turn.is_given()) return;
  mpi_.cancel(&listening_);
  if (mpi_.wait(&listening_) == 0) delete incoming_;
  forget_sent_notices();
  for (SentNotice& sent : sent_notices_) {  // a notice that may never be received
    mpi_.release(&sent.request);
    static_cast<void>(sent.bytes.release());
  }
}

void MpiTransport::listen() {
  check(mpi_.receive(incoming_, sizeof *incoming_, kAnyRank, first_tag_ + kNoticeTag, comm_,
                     &listening_),
        "MPI_Irecv of a notice");
}

collectives::Transport::Request MpiTransport::keep(const mpi::Request& request) {
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
  const Turn turn("MPI_Isend");
  mpi::Request request;
  check(mpi_.send(bytes.data(), static_cast<int>(bytes.size()), in_comm(to_rank), first_tag_ + tag,
                  comm_, &request),
        [&] {
          return "MPI_Isend of " + std::to_string(bytes.size()) + " bytes to rank " +
                 std::to_string(to_rank);
        });
  return keep(request);
}

collectives::Transport::Request MpiTransport::receive(int from_rank, int tag,
                                                      std::span<std::byte> bytes) {
  const Turn turn("MPI_Irecv");
  mpi::Request request;
  check(mpi_.receive(bytes.data(), static_cast<int>(bytes.size()), in_comm(from_rank),
                     first_tag_ + tag, comm_, &request),
        [&] {
          return "MPI_Irecv of " + std::to_string(bytes.size()) + " bytes from rank " +
                 std::to_string(from_rank);
        });
  return keep(request);
}

void MpiTransport::make_lane(const std::vector<int>& ranks) {
  if (ranks.empty()) return;
  const Turn turn("MPI_Comm_create_group");  // all ranks of the lane have arrived, see Turn
  std::vector<int> members;
  for (const int rank : ranks) members.push_back(in_comm(rank));
  check(mpi_.create_group(comm_, members, first_tag_ + kNoticeTag + 1, &lane_),
        "MPI_Comm_create_group");
  has_lane_ = true;
  check(mpi_.return_errors(lane_), "MPI_Comm_set_errhandler");
}

void MpiTransport::free_lane() noexcept {
  if (!has_lane_ || !is_running()) return;
  const Turn turn("MPI_Comm_free", std::nothrow);
  if (!turn.is_given()) return;
  has_lane_ = false;
  mpi_.free(&lane_);
}

collectives::Transport::Request MpiTransport::allreduce(std::byte* data, std::size_t count,
                                                        DType dtype, ReduceOp op) {
  const Turn turn("MPI_Iallreduce");
  mpi::Request request;
  check(mpi_.start_allreduce(data, static_cast<int>(count), dtype, op, lane_, &request),
        [&] { return "MPI_Iallreduce of " + std::to_string(count) + " elements"; });
  return keep(request);
}

bool MpiTransport::done(Request request) {
  const Turn turn("MPI_Test");
  bool complete = false;
  check(mpi_.test(&requests_[request], &complete), "MPI_Test");
  if (!complete) return false;
  free_.push_back(request);
  return true;
}

/// True if this thread may drive messages. Between nodes the program makes no MPI call while other
/// threads make calls of this group.
bool MpiTransport::may_progress() const {
  return has_messages() || lets_callers_progress_ || allows_all_threads() ||
         std::this_thread::get_id() == members_.maker;
}

/// Looks for a message that never comes: MPI_Iprobe returns at once, and lets nothing move, if it
/// finds one, such as a notice that a group which has ended has not received.
void MpiTransport::progress() {
  if (!may_progress()) return;
  const Turn turn("MPI_Iprobe");
  int from = kAnyRank;
  bool found = false;
  check(mpi_.probe(&from, first_tag_ + kTagOfNone, comm_, &found), "MPI_Iprobe");
}

/// Sends a notice. Without memory for it, the others learn of a failure at their deadline.
void MpiTransport::notify(int to_rank, const collectives::Notice& notice) noexcept {
  const Turn turn("MPI_Isend", std::nothrow);
  if (!turn.is_given() || is_mute_ || !is_running()) return;
  forget_sent_notices();
  try {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&notice);
    SentNotice& sent = sent_notices_.emplace_back();
    sent.bytes = std::make_unique<std::vector<std::byte>>(bytes, bytes + notice.size());
    if (mpi_.send(sent.bytes->data(), static_cast<int>(sent.bytes->size()), in_comm(to_rank),
                  first_tag_ + kNoticeTag, comm_, &sent.request) != 0) {
      sent_notices_.pop_back();
    }
  } catch (const std::bad_alloc&) {
    if (!sent_notices_.empty() && sent_notices_.back().bytes == nullptr) sent_notices_.pop_back();
  }
}

/// Requires a turn.
void MpiTransport::forget_sent_notices() noexcept {
  std::erase_if(sent_notices_, [&](SentNotice& sent) {
    bool complete = false;
    return mpi_.test(&sent.request, &complete) == 0 && complete;
  });
}

std::optional<collectives::Notice> MpiTransport::poll_notice() {
  if (!has_messages()) return std::nullopt;
  const Turn turn("MPI_Test");
  bool complete = false;
  check(mpi_.test(&listening_, &complete), "MPI_Test of a notice");
  if (!complete) return std::nullopt;
  const collectives::Notice notice = *incoming_;
  listen();
  return notice;
}

}  // namespace tutti::mpi
