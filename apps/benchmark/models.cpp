// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/models.hpp"

#include <cstdint>

namespace apps::benchmark {
namespace {

using tutti::Shape;

void append_norm(std::vector<Shape>& shapes, std::int64_t channels) {
  shapes.push_back({channels});  // weight
  shapes.push_back({channels});  // bias
}

void append_convolution(std::vector<Shape>& shapes, std::int64_t from, std::int64_t to,
                        std::int64_t kernel) {
  shapes.push_back({to, from, kernel, kernel});
  append_norm(shapes, to);
}

void append_linear(std::vector<Shape>& shapes, std::int64_t from, std::int64_t to) {
  shapes.push_back({to, from});
  shapes.push_back({to});
}

}  // namespace

std::vector<Shape> resnet50() {
  struct Stage {
    int blocks;
    std::int64_t width;
  };
  constexpr std::int64_t kExpansion = 4;
  std::vector<Shape> shapes;
  append_convolution(shapes, 3, 64, 7);
  std::int64_t channels = 64;
  for (const Stage& stage : {Stage{3, 64}, Stage{4, 128}, Stage{6, 256}, Stage{3, 512}}) {
    for (int block = 0; block < stage.blocks; ++block) {
      append_convolution(shapes, channels, stage.width, 1);
      append_convolution(shapes, stage.width, stage.width, 3);
      append_convolution(shapes, stage.width, stage.width * kExpansion, 1);
      if (block == 0) append_convolution(shapes, channels, stage.width * kExpansion, 1);
      channels = stage.width * kExpansion;
    }
  }
  append_linear(shapes, channels, 1000);
  return shapes;
}

std::vector<Shape> bert_base() {
  constexpr std::int64_t kWidth = 768;
  constexpr std::int64_t kInner = 4 * kWidth;
  constexpr int kLayers = 12;
  std::vector<Shape> shapes{{30522, kWidth}, {512, kWidth}, {2, kWidth}};  // embeddings
  append_norm(shapes, kWidth);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int matrix = 0; matrix < 4; ++matrix) {  // query, key, value, output
      append_linear(shapes, kWidth, kWidth);
    }
    append_norm(shapes, kWidth);
    append_linear(shapes, kWidth, kInner);
    append_linear(shapes, kInner, kWidth);
    append_norm(shapes, kWidth);
  }
  append_linear(shapes, kWidth, kWidth);  // pooler
  return shapes;
}

}  // namespace apps::benchmark
