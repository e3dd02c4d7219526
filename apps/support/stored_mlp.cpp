// SPDX-License-Identifier: Apache-2.0
#include "support/stored_mlp.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "support/random.hpp"

namespace apps {
namespace {

// Images of a batch in tests, which are forward passes alone; small shares of a batch would make
// them slow.
constexpr std::size_t kTestBatch = 256;

std::unique_ptr<MlpArithmetic> arithmetic_on(tutti::Device device, int pixels, int max_batch) {
  if (device.kind == tutti::DeviceKind::cpu) return cpu_arithmetic(best_kernels());
  return gpu_arithmetic(device, pixels, max_batch);
}

tutti::Tensor copy_on(tutti::Device device, tutti::Tensor tensor) {
  if (device.kind == tutti::DeviceKind::cpu) return tensor;
  tutti::Tensor copy = tutti::Tensor::empty(tensor.shape(), tensor.dtype(), device);
  copy.view().copy_from(tensor);
  return copy;
}

const float* address(const tutti::ConstTensorView& tensor) {
  return reinterpret_cast<const float*>(tensor.bytes());
}
float* address(const tutti::TensorView& tensor) { return reinterpret_cast<float*>(tensor.bytes()); }

}  // namespace

StoredMlp::StoredMlp(tutti::KVStore& store, const std::vector<int>& widths, std::size_t max_batch,
                     std::int64_t seed, tutti::Device device)
    : store_(store),
      network_(widths, static_cast<int>(std::max(max_batch, kTestBatch)),
               arithmetic_on(device, widths.front(),
                             static_cast<int>(std::max(max_batch, kTestBatch)))) {
  std::vector<tutti::Tensor> initial;  // rank 0's values count
  const auto add = [&](const std::string& name, const tutti::Shape& shape) -> tutti::Tensor& {
    keys_.emplace_back(name);
    gradients_.push_back(device.kind == tutti::DeviceKind::cpu
                             ? store.allocate(shape)
                             : tutti::Tensor::zeros(shape, tutti::DType::float32, device));
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
  for (tutti::Tensor& tensor : initial) tensor = copy_on(device, std::move(tensor));
  store.init(keys_, initial);

  bind();
}

/// Pushes layers with priorities: the first layer's weights are needed first in the next step.
double StoredMlp::compute_and_push(const Batch& share) {
  return network_.gradients(share, [&](int layer) {
    const auto weight = static_cast<std::size_t>(layer) * 2;
    pushes_.push_back(store_.push_async(std::span(keys_).subspan(weight, 2),
                                        std::span(gradients_).subspan(weight, 2),
                                        {.priority = -layer}));
  });
}

void StoredMlp::await_pushes() {
  for (const tutti::Pending& push : pushes_) push.wait();
  pushes_.clear();
}

/// Binds the network to the replicas. A replica keeps its address for the store's whole life; only
/// its content changes.
void StoredMlp::bind() {
  for (int layer = 0; layer < network_.num_layers(); ++layer) {
    const auto weight = static_cast<std::size_t>(layer) * 2;
    const std::size_t bias = weight + 1;
    network_.bind(layer, {.weight = address(store_.view(keys_[weight])),
                          .bias = address(store_.view(keys_[bias])),
                          .weight_gradient = address(gradients_[weight].view()),
                          .bias_gradient = address(gradients_[bias].view())});
  }
}

}  // namespace apps
