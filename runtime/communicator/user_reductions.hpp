// SPDX-License-Identifier: Apache-2.0
// UserReductions: reductions by operations of the program, built from collectives that move blocks.
//
//   elementwise      share r of all inputs to rank r (alltoall) | rank r combines them | allgather,
//                    gather to the root, or nothing
//   whole            all inputs to one rank (gather)            | it combines them     | broadcast,
//                    or nothing
//   pure and small   all inputs to all ranks (allgather)        | every rank combines them
//
// Cost per rank, of n bytes on P ranks: elementwise, n (P-1)/P bytes in and out twice, and (P-1)/P
// combinations of n bytes; whole, P n bytes to one rank, which makes P - 1 combinations.
// Combinations have the order of the canonical tree over ranks.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "tutti/reduce_op.hpp"
#include "tutti/tensor.hpp"

#include "runtime/job/group.hpp"

namespace tutti {

class UserReductions {
 public:
  explicit UserReductions(std::shared_ptr<Group> group) : group_(std::move(group)) {}

  /// The calls of Communicator with the same names. Collective.
  void allreduce(const ConstTensorView& input, const TensorView& output, const UserOp& op);
  void reduce(const ConstTensorView& input, const TensorView& output, int root, const UserOp& op);
  void reduce_scatter(const ConstTensorView& input, const TensorView& output, const UserOp& op);

 private:
  /// One call, with the facts that its data movements have in common.
  struct Request {
    [[nodiscard]] std::string what() const;  ///< the call in words
    const char* call;
    const ConstTensorView& input;
    std::uint64_t digest;
    const UserOp& op;
    DType dtype;
    collectives::Verb verb;
    int root = 0;
  };

  [[nodiscard]] int rank() const { return group_->topology().rank; }
  [[nodiscard]] int size() const { return group_->topology().size; }
  [[nodiscard]] std::vector<std::size_t> shares_of(std::size_t count) const;
  Request request_for(const char* call, collectives::Verb verb, const ConstTensorView& input,
                      const UserOp& op, const std::string& refusal);
  std::byte* scratch(const Request& request, std::size_t bytes);
  void move(const Request& request, collectives::Kind kind,
            const collectives::BlockSegments& segments);
  std::byte* share_out(const Request& request, const ConstTensorView& input,
                       const std::vector<std::size_t>& counts);
  std::byte* collect(const Request& request, const ConstTensorView& input, int root);
  [[nodiscard]] bool is_for_all(const Request& request) const;
  void combine_all(const Request& request, std::byte* output);
  void combine(const Request& request, std::byte* blocks, const Shape& shape);
  void end(const Request& request);

  std::shared_ptr<Group> group_;
  /// In the arena; large enough for the largest call so far.
  Tensor scratch_ = Tensor::empty({0}, DType::uint8);
};

}  // namespace tutti
