// SPDX-License-Identifier: Apache-2.0
// The Fashion-MNIST images and labels (Xiao, Rasul, Vollgraf, 2017), or any data set in the same
// four files, such as MNIST itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace apps {

inline constexpr int kImagePixels = 28 * 28;
inline constexpr int kImageClasses = 10;

/// Over the training pixels, in [0, 1]; images enter the network as (pixel - mean) / deviation.
inline constexpr float kPixelMean = 0.2860F;
inline constexpr float kPixelDeviation = 0.3530F;

struct LabelledImages {
  std::vector<std::uint8_t> pixels;  ///< [count()][kImagePixels]
  std::vector<std::uint8_t> labels;  ///< [count()], each below kImageClasses
  [[nodiscard]] std::size_t count() const noexcept { return labels.size(); }
};

struct FashionMnist {
  LabelledImages train;
  LabelledImages test;
};

/// Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz of `directory`; `limit` > 0 keeps the
/// first `limit` images of either set.
/// Errors  invalid_argument: a file is missing or damaged, with its name and how to get it.
FashionMnist load_fashion_mnist(const std::filesystem::path& directory, std::size_t limit = 0);

}  // namespace apps
