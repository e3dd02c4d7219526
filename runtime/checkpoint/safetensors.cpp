// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/safetensors.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "tutti/error.hpp"

#include "runtime/checkpoint/dtype_names.hpp"

namespace tutti::checkpoint {

namespace {

using Json = nlohmann::ordered_json;

std::uint64_t size_bytes(const TensorInfo& tensor) {
  return tensor.shape.count() * size_of(tensor.dtype);
}

}  // namespace

std::uint64_t Header::data_bytes() const {
  std::uint64_t bytes = 0;
  for (const TensorInfo& tensor : tensors) bytes = std::max(bytes, tensor.end);
  return bytes;
}

const std::string& Header::text(std::string_view name) const {
  const auto found = std::ranges::find(metadata, name, &Texts::value_type::first);
  if (found != metadata.end()) return found->second;
  throw Error(ErrorCode::corrupt_file,
              "__metadata__ has no '" + std::string(name) + "': not a file of this library");
}

void lay_out(std::vector<TensorInfo>& tensors) {
  std::uint64_t position = 0;
  for (const std::size_t width : {8, 4, 2, 1}) {
    for (TensorInfo& tensor : tensors) {
      if (size_of(tensor.dtype) != width) continue;
      tensor.begin = position;
      tensor.end = position += size_bytes(tensor);
    }
  }
}

std::vector<std::size_t> by_offset(const std::vector<TensorInfo>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {},
                    [&](std::size_t i) { return std::pair(tensors[i].begin, tensors[i].end); });
  return order;
}

std::string to_text(const Header& header) {
  Json metadata = Json::object();
  for (const auto& [name, text] : header.metadata) metadata[name] = text;
  Json json{{"__metadata__", metadata}};
  auto& fields = json.get_ref<Json::object_t&>();  // whose [] would look at all names before
  for (const TensorInfo& tensor : header.tensors) {
    Json info{{"dtype", name_of(tensor.dtype)},
              {"shape", tensor.shape.dimensions()},
              {"data_offsets", {tensor.begin, tensor.end}}};
    fields.emplace_back(tensor.name, std::move(info));
  }
  std::string text = json.dump();
  const std::size_t whole = (kLengthBytes + text.size() + kDataAlignment - 1) / kDataAlignment;
  text.resize(whole * kDataAlignment - kLengthBytes, ' ');
  std::string length;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length += static_cast<char>(static_cast<std::uint64_t>(text.size()) >> (8 * i));
  }
  return length + text;
}

void require_utf8(const std::string& text, const std::string& what) {
  try {
    static_cast<void>(Json(text).dump());
  } catch (const Json::exception&) {
    throw Error(ErrorCode::invalid_argument, what + " is not UTF-8; a file's names and texts are");
  }
}

}  // namespace tutti::checkpoint
