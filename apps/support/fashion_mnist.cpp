// SPDX-License-Identifier: Apache-2.0
#include "support/fashion_mnist.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <tutti/error.hpp>

#include "support/idx.hpp"

namespace apps {
namespace {

[[noreturn]] void throw_corrupt_file(const std::filesystem::path& path, const std::string& reason) {
  throw tutti::Error(tutti::ErrorCode::corrupt_file, path.string() + ": " + reason);
}

LabelledImages load_set(const std::filesystem::path& directory, const std::string& name,
                        std::size_t limit) {
  const auto images_path = directory / (name + "-images-idx3-ubyte.gz");
  const auto labels_path = directory / (name + "-labels-idx1-ubyte.gz");
  IdxArray images = read_idx(images_path, 3);
  IdxArray labels = read_idx(labels_path, 1);
  if (images.extents[1] != 28 || images.extents[2] != 28) {
    throw_corrupt_file(images_path, "expected images of 28 x 28 pixels, found " +
                                        std::to_string(images.extents[1]) + " x " +
                                        std::to_string(images.extents[2]));
  }
  if (images.extents[0] == 0 || images.extents[0] != labels.extents[0]) {
    throw_corrupt_file(labels_path, "has " + std::to_string(labels.extents[0]) + " labels for " +
                                        std::to_string(images.extents[0]) + " images");
  }
  if (std::ranges::max(labels.bytes) >= kImageClasses)
    throw_corrupt_file(labels_path, "has labels above 9");
  LabelledImages set{std::move(images.bytes), std::move(labels.bytes)};
  if (limit > 0 && limit < set.count()) {
    set.pixels.resize(limit * kImagePixels);
    set.labels.resize(limit);
  }
  return set;
}

}  // namespace

FashionMnist load_fashion_mnist(const std::filesystem::path& directory, std::size_t limit) {
  try {
    return {load_set(directory, "train", limit), load_set(directory, "t10k", limit)};
  } catch (const tutti::Error& error) {
    // To the program's user the data are an argument: what --data names is not what it should be.
    throw tutti::Error(tutti::ErrorCode::invalid_argument,
                       std::string(error.what()) +
                           " (--data names the folder of the four files; Debian and Ubuntu have "
                           "them: apt-get install dataset-fashion-mnist)");
  }
}

}  // namespace apps
