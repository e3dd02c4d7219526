// SPDX-License-Identifier: Apache-2.0
#include "support/tour.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <sstream>

#include <tutti/program.hpp>
#include <tutti/settings.hpp>

#include "support/command_line.hpp"

namespace apps {
namespace {

constexpr int kWrongResult = 3;
constexpr double kTolerance = 1e-6;  // float32 sums of -0.1, and 3 + 0.01 * 5

// The fewest digits that read back as the same float32.
std::string number_text(float number) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  std::string text(digits.data(), end);
  const bool integral = text.find_first_not_of("-0123456789") == std::string::npos;
  return integral ? text + "." : text;
}

std::string one_line(std::string text) {
  std::erase(text, '\n');
  return text;
}

std::string join(const std::vector<tutti::Key>& keys) {
  std::string text;
  for (const tutti::Key& key : keys) text += (text.empty() ? "" : ", ") + to_string(key);
  return text.empty() ? "none" : text;
}

}  // namespace

tutti::Tensor filled(double value) { return tutti::Tensor::full(kTourShape, value); }

std::vector<tutti::Tensor> on_devices(int count, double value) {
  std::vector<tutti::Tensor> tensors;
  for (int device = 0; device < count; ++device) {
    tensors.push_back(
        tutti::Tensor::full(kTourShape, value, tutti::DType::float32, tutti::cpu(device)));
  }
  return tensors;
}

std::vector<std::vector<tutti::Tensor>> on_devices_per_key(std::size_t keys, int count,
                                                           double value) {
  std::vector<std::vector<tutti::Tensor>> lists;
  while (lists.size() < keys) lists.push_back(on_devices(count, value));
  return lists;
}

std::string tour_text(int argc, const char* const* argv) {
  boost::program_options::options_description options("Options", 100);
  add_common_options(options);
  const auto values = parse_command_line(argc, argv, options);
  std::ostringstream text;
  if (values.contains("help")) {
    text << "kvstore-tour: walks through the key-value store call by call and checks every value.\n"
            "Start it alone or with mpirun. Exit code 3: a value was wrong.\n\n"
         << options << "\nEnvironment:\n"
         << tutti::Settings::help();
  } else if (values.contains("version")) {
    text << tutti::build_info();
  }
  return text.str();
}

std::string matrix_text(const tutti::ConstTensorView& matrix) {
  const auto elements = matrix.values<float>();
  const auto columns = static_cast<std::size_t>(matrix.shape().dimensions()[1]);
  std::string text = "[";
  for (std::size_t index = 0; index < elements.size(); ++index) {
    const bool row_starts = index % columns == 0;
    if (row_starts) text += index == 0 ? "[" : "]\n [";
    text += (row_starts ? "" : " ") + number_text(elements[index]);
  }
  return text + "]]";
}

void Narrator::say(const std::string& line) const {
  if (prints_) std::cout << line << '\n' << std::flush;
}

void Narrator::heading(const tutti::KVStore& kv) {
  say("\n== create(\"" + std::string(kv.type()) + "\"): rank " + std::to_string(kv.rank()) +
      " of " + std::to_string(kv.num_workers()) + "; updaters run on every rank, after the sum ==");
}

void Narrator::call(const std::string& text) {
  call_ = text;
  say("kv." + text);
}

void Narrator::update(const tutti::Key& key) {
  updates_.push_back(key);
  say("update on key: " + to_string(key));
}

void Narrator::check(bool right, const std::string& problem) {
  ++checks_;
  if (!right && first_problem_.empty()) first_problem_ = "kv." + call_ + ": " + problem;
}

void Narrator::value(const tutti::ConstTensorView& shown, double expected) {
  say(matrix_text(shown));
  check_elements(shown, expected);
}

void Narrator::one_of(std::span<const tutti::Tensor> tensors, std::size_t shown, double expected) {
  say(matrix_text(tensors[shown]));
  for (const tutti::Tensor& tensor : tensors) check_elements(tensor, expected);
}

void Narrator::one_of(std::span<const std::vector<tutti::Tensor>> lists, std::size_t shown,
                      double expected) {
  say(matrix_text(lists[shown][shown]));
  for (const auto& list : lists) {
    for (const tutti::Tensor& tensor : list) check_elements(tensor, expected);
  }
}

void Narrator::check_elements(const tutti::ConstTensorView& tensor, double expected) {
  const bool right = std::ranges::all_of(tensor.values<float>(), [&](float element) {
    return std::abs(element - expected) <= kTolerance * std::max(1.0, std::abs(expected));
  });
  check(right, "expected all " + number_text(static_cast<float>(expected)) + " found " +
                   one_line(matrix_text(tensor)));
}

void Narrator::expect_updates(const std::vector<tutti::Key>& keys) {
  check(updates_ == keys, "expected updates of keys " + join(keys) + ", found " + join(updates_));
  updates_.clear();
}

int Narrator::verdict(tutti::Communicator& world) const {
  std::int64_t first_wrong_rank = first_problem_.empty() ? world.size() : world.rank();
  world.allreduce(tutti::view(&first_wrong_rank, {1}), tutti::ReduceOp::min);
  if (first_wrong_rank == world.size()) {
    say("\nall " + std::to_string(checks_) + " checks right on " + std::to_string(world.size()) +
        (world.size() == 1 ? " rank" : " ranks"));
    return 0;
  }
  if (first_wrong_rank == world.rank()) {
    std::cerr << "kvstore-tour: wrong result on rank " << world.rank() << ": " << first_problem_
              << '\n';
  }
  return kWrongResult;
}

}  // namespace apps
