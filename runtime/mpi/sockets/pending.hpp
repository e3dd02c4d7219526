// SPDX-License-Identifier: Apache-2.0
// What a request of the socket job stands for: a message, or a step that all ranks of a
// communicator make together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/mpi/sockets/mailbox.hpp"

namespace tutti::mpi::sockets {

/// The ranks of a communicator, as numbers of the job.
struct Members {
  std::uint64_t context = 0;
  std::vector<int> ranks;
  int own = 0;                 ///< this rank's place
  std::uint64_t children = 0;  ///< communicators that all of its ranks have made of it
  int steps = 0;               ///< that all of them have made together
};

class Pending {
 public:
  virtual ~Pending() = default;
  /// True once it is done. Called after Mailbox::look().
  virtual bool advance(Mailbox& mailbox) = 0;
  [[nodiscard]] virtual Trouble trouble() const = 0;
  /// Those without which it cannot be done.
  [[nodiscard]] virtual std::vector<int> awaited() const = 0;
  virtual void cancel(Mailbox& /*mailbox*/) {}
};

class PendingSend final : public Pending {
 public:
  PendingSend(std::shared_ptr<Sending> sending, int to) : sending_(std::move(sending)), to_(to) {}
  bool advance(Mailbox& /*mailbox*/) override { return sending_->is_done; }
  [[nodiscard]] Trouble trouble() const override { return sending_->trouble; }
  [[nodiscard]] std::vector<int> awaited() const override { return {to_}; }

 private:
  std::shared_ptr<Sending> sending_;
  int to_;
};

class PendingReceive final : public Pending {
 public:
  explicit PendingReceive(std::shared_ptr<Receiving> receiving)
      : receiving_(std::move(receiving)) {}
  bool advance(Mailbox& /*mailbox*/) override { return is_cancelled_ || receiving_->is_done; }
  [[nodiscard]] Trouble trouble() const override { return receiving_->trouble; }
  [[nodiscard]] std::vector<int> awaited() const override {
    if (receiving_->from == kAnyPeer) return {};
    return {receiving_->from};
  }
  void cancel(Mailbox& mailbox) override {
    mailbox.forget(receiving_);
    is_cancelled_ = true;
  }

 private:
  std::shared_ptr<Receiving> receiving_;
  bool is_cancelled_ = false;
};

/// The first rank of `members` has what all of them have, makes one answer of it, and sends that to
/// all. 2 (n - 1) messages: the ranks of one host are few.
class PendingMeeting final : public Pending {
 public:
  using Bytes = std::vector<std::byte>;
  using Combine = std::function<Bytes(std::vector<Bytes>&&)>;

  /// `answer` gets the answer, and stays where it is.
  PendingMeeting(Mailbox& mailbox, Members& members, Bytes own, std::span<std::byte> answer,
                 Combine combine);
  bool advance(Mailbox& mailbox) override;
  [[nodiscard]] Trouble trouble() const override;
  [[nodiscard]] std::vector<int> awaited() const override { return ranks_; }

 private:
  bool advance_first(Mailbox& mailbox);

  Subject subject_;
  std::vector<int> ranks_;
  bool is_first_;
  Bytes own_;
  std::span<std::byte> answer_;
  Combine combine_;
  std::vector<std::shared_ptr<Receiving>> received_;
  std::vector<std::shared_ptr<Sending>> sent_;
  bool has_answer_ = false;
};

}  // namespace tutti::mpi::sockets
