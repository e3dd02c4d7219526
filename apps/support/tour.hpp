// SPDX-License-Identifier: Apache-2.0
// Tells the steps of kvstore-tour, and checks each value that it shows.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <tutti/kvstore.hpp>

namespace apps {

inline const tutti::Shape kTourShape{2, 3};

tutti::Tensor filled(double value);
/// One tensor on each of cpu(0) .. cpu(count - 1).
std::vector<tutti::Tensor> on_devices(int count, double value);
std::vector<std::vector<tutti::Tensor>> on_devices_per_key(std::size_t keys, int count,
                                                           double value);

/// The output of --help or --version; empty if neither is given.
/// Errors  invalid_argument: any other argument.
std::string tour_text(int argc, const char* const* argv);

/// A float32 matrix as numpy prints it, for example "[[2. 2. 2.]\n [2. 2. 2.]]".
std::string matrix_text(const tutti::ConstTensorView& matrix);

class Narrator {
 public:
  /// Only the rank that `prints` writes lines; all ranks check.
  explicit Narrator(bool prints) : prints_(prints) {}

  /// Begins a new store: shows its type, and which ranks have it.
  void heading(const tutti::KVStore& kv);
  /// Shows the call that comes next.
  void call(const std::string& text);
  /// Shows that an updater begins: "update on key: 3".
  void update(const tutti::Key& key);
  /// Shows a value, all of whose elements must be `expected`.
  void value(const tutti::ConstTensorView& shown, double expected);
  /// Shows one of several tensors, all of which are checked.
  void one_of(std::span<const tutti::Tensor> tensors, std::size_t shown, double expected);
  void one_of(std::span<const std::vector<tutti::Tensor>> lists, std::size_t shown,
              double expected);
  /// The updates since the last call of this must have been of these keys, in this order.
  void expect_updates(const std::vector<tutti::Key>& keys);

  /// The program's exit code: 0, or 3 on every rank if a value was wrong on any. Collective.
  int verdict(tutti::Communicator& world) const;

 private:
  void say(const std::string& line) const;
  void check(bool right, const std::string& problem);
  void check_elements(const tutti::ConstTensorView& tensor, double expected);

  bool prints_;
  std::string call_;
  std::vector<tutti::Key> updates_;
  std::size_t checks_ = 0;
  std::string first_problem_;
};

}  // namespace apps
