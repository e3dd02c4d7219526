// SPDX-License-Identifier: Apache-2.0
#include "support/stored_mlp.hpp"

#include <algorithm>
#include <string>

#include "support/random.hpp"

namespace apps {
namespace {

// Tests are forward passes alone; small shares of a batch would make them slow.
constexpr std::size_t kTestBatch = 256;

}  // namespace

StoredMlp::StoredMlp(tutti::KVStore& store, const std::vector<int>& widths, std::size_t max_batch,
                     std::int64_t seed)
    : store_(store), network_(widths, static_cast<int>(std::max(max_batch, kTestBatch))) {
  std::vector<tutti::Tensor> initial;  // rank 0's values win
  const auto add = [&](const std::string& name, const tutti::Shape& shape) -> tutti::Tensor& {
    keys_.emplace_back(name);
    gradients_.push_back(store.allocate(shape));
    return initial.emplace_back(tutti::Tensor::zeros(shape));
  };
  for (int layer = 0; layer < network_.num_layers(); ++layer) {
    const std::string name = "fc" + std::to_string(layer + 1);
    const int inputs = widths[static_cast<std::size_t>(layer)];
    const int outputs = widths[static_cast<std::size_t>(layer) + 1];
    tutti::Tensor& weight = add(name + ".weight", {outputs, inputs});
    fill_he_normal(static_cast<std::uint64_t>(seed), layer, inputs, weight.values<float>());
    add(name + ".bias", {outputs});
  }
  store.init(keys_, initial);

  // A replica keeps its address for the store's whole life; only its content changes.
  for (int layer = 0; layer < network_.num_layers(); ++layer) {
    const auto weight = static_cast<std::size_t>(layer) * 2;
    const std::size_t bias = weight + 1;
    network_.bind(layer, {.weight = store.view(keys_[weight]).values<float>().data(),
                          .bias = store.view(keys_[bias]).values<float>().data(),
                          .weight_gradient = gradients_[weight].values<float>().data(),
                          .bias_gradient = gradients_[bias].values<float>().data()});
  }
}

}  // namespace apps
