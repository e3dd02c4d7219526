// SPDX-License-Identifier: Apache-2.0
// Reads a header without building a tree of it: what does not fit the grammar ends the reading at
// once, so that nesting, repetition and size of the text cost no more memory than the text.
#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "tutti/error.hpp"

#include "runtime/base/throw.hpp"
#include "runtime/checkpoint/dtype_names.hpp"
#include "runtime/checkpoint/safetensors.hpp"

namespace tutti::checkpoint {

namespace {

constexpr std::size_t kShownBytes = 80;

/// A name as a message shows it: short, and without bytes that would upset a terminal.
std::string shown(std::string name) {
  const bool is_long = name.size() > kShownBytes;
  name.resize(std::min(name.size(), kShownBytes));
  std::ranges::replace_if(
      name, [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; }, '?');
  return "'" + name + (is_long ? "...'" : "'");
}

/// What has been read of one tensor.
struct Draft {
  std::string name;
  std::optional<DType> dtype;
  std::optional<std::vector<std::int64_t>> shape;
  std::optional<std::vector<std::int64_t>> offsets;
};

class HeaderParser final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Header take() { return std::move(header_); }

  bool start_object(std::size_t /*elements*/) override {
    switch (place_) {
      case Place::before:
        return enter(Place::header);
      case Place::entry:
        return enter(draft_.name == "__metadata__" ? Place::metadata : Place::tensor);
      case Place::header:
      case Place::metadata:
      case Place::text:
      case Place::tensor:
      case Place::field:
      case Place::numbers:
        break;
    }
    unexpected("an object");
  }

  bool key(std::string& name) override {
    if (place_ == Place::header) {
      if (!names_.insert(name).second)
        throw_corrupt_file("the name " + shown(name) + " occurs twice");
      draft_ = {.name = std::move(name), .dtype = {}, .shape = {}, .offsets = {}};
      return enter(Place::entry);
    }
    field_ = std::move(name);
    if (place_ == Place::metadata) {
      if (!texts_.insert(field_).second) {
        throw_corrupt_file("__metadata__ has " + shown(field_) + " twice");
      }
      return enter(Place::text);
    }
    if (field_ != "dtype" && field_ != "shape" && field_ != "data_offsets") {
      throw_corrupt_file(tensor() + "an unknown field " + shown(field_));
    }
    return enter(Place::field);
  }

  bool string(std::string& text) override {
    if (place_ == Place::text) {
      header_.metadata.emplace_back(field_, std::move(text));
      return enter(Place::metadata);
    }
    if (place_ != Place::field || field_ != "dtype") unexpected("a text");
    if (draft_.dtype) throw_corrupt_file(tensor() + "dtype occurs twice");
    draft_.dtype = dtype_named(text);
    if (!draft_.dtype) {
      throw_corrupt_file(tensor() + "dtype " + shown(text) + " is none that a store holds");
    }
    return enter(Place::tensor);
  }

  bool start_array(std::size_t /*elements*/) override {
    if (place_ != Place::field || field_ == "dtype") unexpected("a list");
    if (numbers()) throw_corrupt_file(tensor() + field_ + " occurs twice");
    numbers().emplace();
    return enter(Place::numbers);
  }

  bool number_unsigned(number_unsigned_t number) override {
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (place_ != Place::numbers) unexpected("a number");
    if (number > kMost) throw_corrupt_file(tensor() + field_ + ": a number of 2^63 or more");
    const std::size_t most = field_ == "shape" ? Shape::kMaxDimensions : 2;
    if (numbers()->size() == most) {
      throw_corrupt_file(tensor() + field_ + " has more than " + std::to_string(most) + " numbers");
    }
    numbers()->push_back(static_cast<std::int64_t>(number));
    return true;
  }

  bool end_array() override { return enter(Place::tensor); }

  bool end_object() override {
    if (place_ == Place::tensor) header_.tensors.push_back(finished());
    return enter(Place::header);
  }

  bool null() override { unexpected("null"); }
  bool boolean(bool /*value*/) override { unexpected("a truth value"); }
  bool number_integer(number_integer_t /*number*/) override { unexpected("a negative number"); }
  bool number_float(number_float_t /*number*/, const std::string& /*text*/) override {
    unexpected("a number that is not a whole one below 2^64");
  }
  bool binary(binary_t& /*value*/) override { unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    throw_corrupt_file("the header is not JSON in UTF-8, at its byte " + std::to_string(position));
  }

 private:
  enum class Place { before, header, entry, metadata, text, tensor, field, numbers };

  bool enter(Place place) {
    place_ = place;
    return true;
  }

  [[noreturn]] void unexpected(const char* what) const {
    switch (place_) {
      case Place::before:
        throw_corrupt_file(std::string("the header is ") + what + ", expected an object");
      case Place::header:
      case Place::entry:
        throw_corrupt_file("the value of " + shown(draft_.name) + " is " + what +
                           ", expected an object");
      case Place::metadata:
      case Place::text:
        throw_corrupt_file("__metadata__ " + shown(field_) + " is " + what + ", expected a text");
      case Place::tensor:
      case Place::field:
        throw_corrupt_file(tensor() + field_ + " is " + what);
      case Place::numbers:
        break;
    }
    throw_corrupt_file(tensor() + field_ + " holds " + what + ", expected numbers from 0");
  }

  [[nodiscard]] std::string tensor() const { return "tensor " + shown(draft_.name) + ": "; }

  std::optional<std::vector<std::int64_t>>& numbers() {
    return field_ == "shape" ? draft_.shape : draft_.offsets;
  }

  TensorInfo finished() {
    if (!draft_.dtype || !draft_.shape || !draft_.offsets) {
      throw_corrupt_file(tensor() + "expected dtype, shape and data_offsets");
    }
    if (draft_.offsets->size() != 2)
      throw_corrupt_file(tensor() + "data_offsets are not two numbers");
    try {
      return {std::move(draft_.name), *draft_.dtype, Shape(std::span(std::as_const(*draft_.shape))),
              static_cast<std::uint64_t>(draft_.offsets->front()),
              static_cast<std::uint64_t>(draft_.offsets->back())};
    } catch (const Error& error) {
      throw_corrupt_file(tensor() + error.what());
    }
  }

  Place place_ = Place::before;
  Header header_;
  Draft draft_;
  std::string field_;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> texts_;
};

void check_offsets(const TensorInfo& tensor, std::uint64_t data_bytes) {
  const std::string place = "tensor " + shown(tensor.name) + ": data_offsets [" +
                            std::to_string(tensor.begin) + ", " + std::to_string(tensor.end) + "] ";
  if (tensor.begin > tensor.end) throw_corrupt_file(place + "end before they begin");
  if (tensor.end > data_bytes) {
    throw_corrupt_file(place + "reach beyond the " + std::to_string(data_bytes) +
                       " bytes of data (is the file truncated?)");
  }
  const std::uint64_t elements = (tensor.end - tensor.begin) / size_of(tensor.dtype);
  if (elements != tensor.shape.count() ||
      elements * size_of(tensor.dtype) + tensor.begin != tensor.end) {
    throw_corrupt_file(place + "do not fit " + to_string(tensor.shape) + " " +
                       to_string(tensor.dtype));
  }
}

/// Each byte of the data belongs to exactly one tensor.
void check_coverage(const std::vector<TensorInfo>& tensors, std::uint64_t data_bytes) {
  std::uint64_t covered = 0;
  for (const std::size_t i : by_offset(tensors)) {
    const TensorInfo& tensor = tensors[i];
    if (tensor.begin != covered) {
      throw_corrupt_file("tensor " + shown(tensor.name) + " begins at byte " +
                         std::to_string(tensor.begin) +
                         (tensor.begin < covered ? ", which belongs to another" : ", after a gap") +
                         "; expected " + std::to_string(covered));
    }
    covered = tensor.end;
  }
  if (covered != data_bytes) {
    throw_corrupt_file("the tensors end at byte " + std::to_string(covered) + " of " +
                       std::to_string(data_bytes) + " bytes of data");
  }
}

}  // namespace

std::uint64_t header_length(std::string_view first_bytes, std::uint64_t file_bytes) {
  if (file_bytes < kLengthBytes || first_bytes.size() < kLengthBytes) {
    throw_corrupt_file("the file has " + std::to_string(file_bytes) +
                       " bytes, too few for a safetensors file");
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<std::uint64_t>(static_cast<unsigned char>(first_bytes[i])) << (8 * i);
  }
  if (length > kMostHeaderBytes || length > file_bytes - kLengthBytes) {
    throw_corrupt_file("the header's length is given as " + std::to_string(length) +
                       " bytes, expected at most " +
                       std::to_string(std::min(kMostHeaderBytes, file_bytes - kLengthBytes)));
  }
  return length;
}

Header parse_header(std::string_view json, std::uint64_t data_bytes) {
  if (!json.starts_with('{')) throw_corrupt_file("the header does not begin with '{'");
  HeaderParser parser;
  nlohmann::json::sax_parse(json.begin(), json.end(), &parser);
  Header header = parser.take();
  for (const TensorInfo& tensor : header.tensors) check_offsets(tensor, data_bytes);
  check_coverage(header.tensors, data_bytes);
  return header;
}

}  // namespace tutti::checkpoint
