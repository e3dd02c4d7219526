// SPDX-License-Identifier: Apache-2.0
// The network's gradients, compared with finite differences of a reference in double precision, for
// every instruction set that this processor has.
#include "apps/support/mlp.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <doctest/doctest.h>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "tutti/error.hpp"

#include "apps/support/random.hpp"

namespace {

using apps::MlpKernels;

struct Layer {
  std::vector<float> weight, bias, weight_gradient, bias_gradient;
};

struct Network {
  std::vector<int> widths;
  std::vector<Layer> layers;

  explicit Network(std::vector<int> all_widths) : widths(std::move(all_widths)) {
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      const auto outputs = static_cast<std::size_t>(widths[i + 1]);
      const std::size_t weights = static_cast<std::size_t>(widths[i]) * outputs;
      Layer& layer = layers.emplace_back();
      layer.weight.resize(weights);
      layer.bias.resize(outputs);
      // Gradients start as rubbish: they must be written, not added to.
      layer.weight_gradient.assign(weights, 1e30F);
      layer.bias_gradient.assign(outputs, 1e30F);
      apps::fill_he_normal(7, static_cast<int>(i), widths[i], layer.weight);
      apps::fill_he_normal(8, static_cast<int>(i), 50, layer.bias);
    }
  }

  apps::Mlp bound(int max_batch, const MlpKernels& kernels) {
    apps::Mlp mlp(widths, max_batch, kernels);
    for (int i = 0; i < mlp.num_layers(); ++i) {
      Layer& layer = layers[static_cast<std::size_t>(i)];
      mlp.bind(i, {layer.weight.data(), layer.bias.data(), layer.weight_gradient.data(),
                   layer.bias_gradient.data()});
    }
    return mlp;
  }
};

apps::LabelledImages random_images(std::size_t count, int pixels, int classes) {
  apps::Random random(3);
  apps::LabelledImages images;
  images.pixels.resize(count * static_cast<std::size_t>(pixels));
  images.labels.resize(count);
  for (auto& pixel : images.pixels) pixel = static_cast<std::uint8_t>(random.below(256));
  for (auto& label : images.labels) {
    label = static_cast<std::uint8_t>(random.below(static_cast<std::uint32_t>(classes)));
  }
  return images;
}

std::vector<double> reference_logits(const Network& network, std::span<const std::uint8_t> image) {
  std::vector<double> values;
  for (const std::uint8_t pixel : image) {
    values.push_back((pixel / 255.0 - apps::kPixelMean) / apps::kPixelDeviation);
  }
  for (const Layer& layer : network.layers) {
    std::vector<double> sums(layer.bias.begin(), layer.bias.end());
    for (std::size_t out = 0; out < sums.size(); ++out) {
      for (std::size_t in = 0; in < values.size(); ++in) {
        sums[out] += layer.weight[out * values.size() + in] * values[in];
      }
      if (&layer != &network.layers.back()) sums[out] = std::max(sums[out], 0.0);
    }
    values = sums;
  }
  return values;
}

double reference_loss(const Network& network, const apps::Batch& batch) {
  const auto pixels = static_cast<std::size_t>(network.widths.front());
  double loss = 0.0;
  for (const std::uint32_t index : batch.indices) {
    const auto logits =
        reference_logits(network, std::span(batch.images.pixels).subspan(index * pixels, pixels));
    double total = 0.0;
    for (const double logit : logits) total += std::exp(logit);
    loss += std::log(total) - logits[batch.images.labels[index]];
  }
  return loss;
}

// The largest difference between the gradients and central differences of the reference's loss.
double worst_difference(Network& network, std::vector<float>& values,
                        const std::vector<float>& gradient, const apps::Batch& batch) {
  double worst = 0.0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = values[i];
    const float above = value + 1e-3F;
    const float below = value - 1e-3F;
    values[i] = above;
    const double loss_above = reference_loss(network, batch);
    values[i] = below;
    const double loss_below = reference_loss(network, batch);
    values[i] = value;
    const double expected = (loss_above - loss_below) / (double{above} - double{below});
    worst = std::max(worst, std::abs(gradient[i] - expected) / std::max(1.0, std::abs(expected)));
  }
  return worst;
}

template <class Body>
void for_each_kernels(const Body& body) {
  for (const MlpKernels* const kernels : apps::all_kernels()) {
    if (!kernels->supported()) continue;
    CAPTURE(std::string(kernels->name));
    body(*kernels);
  }
}

}  // namespace

TEST_CASE("gradients are those of finite differences, for every instruction set") {
  const std::vector<std::uint32_t> indices{4, 0, 9, 9, 2};  // an image may occur twice
  for (const std::vector<int>& widths :
       {std::vector{12, 7, 5, 3}, std::vector{17, 33, 10}, std::vector{5, 4}}) {
    const auto images = random_images(10, widths.front(), widths.back());
    const apps::Batch batch{images, indices};
    for_each_kernels([&](const MlpKernels& kernels) {
      Network network(widths);
      const double loss = network.bound(8, kernels).gradients(batch);
      CHECK(loss == doctest::Approx(reference_loss(network, batch)).epsilon(1e-5));
      for (Layer& layer : network.layers) {
        CHECK(worst_difference(network, layer.weight, layer.weight_gradient, batch) < 2e-3);
        CHECK(worst_difference(network, layer.bias, layer.bias_gradient, batch) < 2e-3);
      }
    });
  }
}

TEST_CASE("all instruction sets give the same gradients within rounding") {
  const std::vector<int> widths{784, 256, 128, 10};
  const auto images = random_images(64, 784, 10);
  std::vector<std::uint32_t> indices(64);
  std::iota(indices.begin(), indices.end(), 0U);
  Network expected(widths);
  const double expected_loss =
      expected.bound(64, *apps::all_kernels().back()).gradients({images, indices});
  for_each_kernels([&](const MlpKernels& kernels) {
    Network network(widths);
    const double loss = network.bound(64, kernels).gradients({images, indices});
    CHECK(loss == doctest::Approx(expected_loss).epsilon(1e-5));
    for (std::size_t layer = 0; layer < network.layers.size(); ++layer) {
      const auto& got = network.layers[layer].weight_gradient;
      const auto& right = expected.layers[layer].weight_gradient;
      double worst = 0.0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        worst = std::max(worst, std::abs(double{got[i]} - double{right[i]}));
      }
      CHECK(worst < 1e-3);
    }
  });
}

TEST_CASE("the gradients of a batch are the sum of those of its parts") {
  const std::vector<int> widths{20, 9, 4};
  const auto images = random_images(6, 20, 4);
  const std::vector<std::uint32_t> indices{0, 1, 2, 3, 4, 5};
  Network whole(widths);
  Network part(widths);
  whole.bound(6, apps::best_kernels()).gradients({images, indices});
  std::vector<float> sum(part.layers[0].weight.size());
  for (const std::size_t first : {0U, 2U, 4U}) {
    part.bound(6, apps::best_kernels()).gradients({images, std::span(indices).subspan(first, 2)});
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part.layers[0].weight_gradient[i];
  }
  for (std::size_t i = 0; i < sum.size(); ++i) {
    CHECK(sum[i] == doctest::Approx(whole.layers[0].weight_gradient[i]).epsilon(1e-4));
  }
}

TEST_CASE("count_correct counts the images whose largest logit is the label's") {
  const std::vector<int> widths{20, 9, 4};
  const auto images = random_images(101, 20, 4);
  Network network(widths);
  int expected = 0;
  for (std::size_t i = 3; i < 100; ++i) {
    const auto logits = reference_logits(network, std::span(images.pixels).subspan(i * 20, 20));
    expected += std::ranges::max_element(logits) - logits.begin() == images.labels[i] ? 1 : 0;
  }
  for_each_kernels([&](const MlpKernels& kernels) {
    CHECK(network.bound(16, kernels).count_correct(images, 3, 100) == expected);
    CHECK(network.bound(16, kernels).count_correct(images, 3, 3) == 0);
  });
}

TEST_CASE("the loss is finite where exp of a logit is not") {
  const std::vector<int> widths{4, 3};
  const auto images = random_images(1, 4, 3);
  const std::vector<std::uint32_t> indices{0};
  for_each_kernels([&](const MlpKernels& kernels) {
    Network network(widths);
    network.layers[0].bias = {1000.0F, -1000.0F, 0.0F};
    CHECK(std::isfinite(network.bound(1, kernels).gradients({images, indices})));
  });
}

TEST_CASE("a batch that does not fit is refused") {
  const auto images = random_images(3, 4, 3);
  const std::vector<std::uint32_t> indices{0, 1, 2};
  Network network({4, 3});
  apps::Mlp mlp = network.bound(2, apps::best_kernels());
  CHECK_THROWS_AS(mlp.gradients({images, indices}), tutti::Error);
}

TEST_CASE("the order of an epoch is a permutation that depends on seed and epoch alone") {
  std::vector<std::uint32_t> first(1000);
  std::vector<std::uint32_t> again(1000, 5);
  std::vector<std::uint32_t> later(1000);
  std::vector<std::uint32_t> other(1000);
  apps::shuffle_epoch(1, 0, first);
  apps::shuffle_epoch(1, 0, again);
  apps::shuffle_epoch(1, 1, later);
  apps::shuffle_epoch(2, 0, other);
  CHECK(first == again);
  CHECK(first != later);
  CHECK(first != other);
  std::ranges::sort(first);
  for (std::uint32_t i = 0; i < 1000; ++i) CHECK(first[i] == i);
}
