// SPDX-License-Identifier: Apache-2.0
// A multilayer perceptron on a GPU: matrix products by cuBLAS, which is found when the program
// runs, and a few small kernels.
//
// A row-major [batch][features] matrix is cuBLAS's column-major one of features x batch.
#include <array>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <vector>

#include <tutti/error.hpp>
#include <tutti/gpu.hpp>

#include "support/mlp.hpp"

namespace apps {
namespace {

constexpr int kThreads = 256;

// --- kernels ---------------------------------------------------------------------------------

__global__ void scale_pixels(const std::uint8_t* images, std::size_t count, float scale,
                             float shift, float* output) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) output[i] = static_cast<float>(images[i]) * scale + shift;
}

__global__ void add_bias(const float* bias, int outputs, std::size_t count, bool relu,
                         float* sums) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const float sum = sums[i] + bias[i % outputs];
  sums[i] = relu && !(sum > 0.0F) ? 0.0F : sum;
}

__global__ void mask_by_relu(const float* activation, std::size_t count, float* delta) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count && !(activation[i] > 0.0F)) delta[i] = 0.0F;
}

/// Sums over the batch, in its order, with one thread per output.
__global__ void sum_rows(const float* delta, int outputs, int batch, float* bias) {
  const int output = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (output >= outputs) return;
  float sum = delta[output];
  for (int row = 1; row < batch; ++row) sum += delta[std::size_t{1} * row * outputs + output];
  bias[output] = sum;
}

/// One thread per row, because there are few classes and many rows.
__global__ void softmax_delta(int batch, int classes, const std::uint8_t* labels, float* logits,
                              float* losses) {
  const int row = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (row >= batch) return;
  float* const sums = logits + std::size_t{1} * row * classes;
  float most = sums[0];
  for (int i = 1; i < classes; ++i) most = sums[i] > most ? sums[i] : most;
  const float right = sums[labels[row]] - most;
  float total = 0.0F;
  for (int i = 0; i < classes; ++i) {
    sums[i] = expf(sums[i] - most);
    total += sums[i];
  }
  for (int i = 0; i < classes; ++i) sums[i] /= total;
  sums[labels[row]] -= 1.0F;
  losses[row] = logf(total) - right;
}

__global__ void mark_correct(int batch, int classes, const std::uint8_t* labels,
                             const float* logits, float* correct) {
  const int row = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (row >= batch) return;
  const float* const sums = logits + std::size_t{1} * row * classes;
  int best = 0;
  for (int i = 1; i < classes; ++i) best = sums[i] > sums[best] ? i : best;
  correct[row] = best == labels[row] ? 1.0F : 0.0F;
}

// --- cuBLAS ----------------------------------------------------------------------------------

[[noreturn]] void throw_unusable(const std::string& why) {
  throw tutti::Error(tutti::ErrorCode::invalid_argument, "training on a GPU: " + why);
}

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw tutti::Error(tutti::ErrorCode::communication,
                     std::string(call) + ": " + cudaGetErrorString(status));
}

/// The four functions of cuBLAS that are used. The program does not link the library, so that it
/// starts where there is none.
class Cublas {
 public:
  Cublas() {
    void* library = open();
    find(library, create_, "cublasCreate_v2");
    find(library, destroy_, "cublasDestroy_v2");
    find(library, set_stream_, "cublasSetStream_v2");
    find(library, sgemm_, "cublasSgemm_v2");
    require(create_(&handle_), "cublasCreate");
  }
  ~Cublas() { destroy_(handle_); }
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  struct Operand {
    cublasOperation_t operation;
    const float* data;
    int leading;
  };
  /// Computes c = a * b, where c is [m][n], column-major and dense, and the sums are over k.
  void multiply(cudaStream_t stream, std::array<int, 3> mnk, Operand a, Operand b, float* c) {
    const float one = 1.0F;
    const float zero = 0.0F;
    require(set_stream_(handle_, stream), "cublasSetStream");
    require(sgemm_(handle_, a.operation, b.operation, mnk[0], mnk[1], mnk[2], &one, a.data,
                   a.leading, b.data, b.leading, &zero, c, mnk[0]),
            "cublasSgemm");
  }

 private:
  static void* open() {
    const std::string name = "libcublas.so." + std::to_string(CUBLAS_VER_MAJOR);
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw_unusable(std::string("cuBLAS is not here: ") + dlerror());
    return library;
  }
  template <class Function>
  static void find(void* library, Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) throw_unusable(std::string("cuBLAS has no ") + name);
  }
  static void require(cublasStatus_t status, const char* call) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw tutti::Error(tutti::ErrorCode::communication,
                       std::string(call) + ": status " + std::to_string(status));
  }

  decltype(&cublasCreate_v2) create_ = nullptr;
  decltype(&cublasDestroy_v2) destroy_ = nullptr;
  decltype(&cublasSetStream_v2) set_stream_ = nullptr;
  decltype(&cublasSgemm_v2) sgemm_ = nullptr;
  cublasHandle_t handle_ = nullptr;
};

// --- the network's functions -----------------------------------------------------------------

class GpuArithmetic final : public MlpArithmetic {
 public:
  GpuArithmetic(tutti::Device device, int pixels, int max_batch)
      : device_(device),
        gathered_(tutti::Tensor::empty({max_batch, pixels}, tutti::DType::uint8)),
        images_(tutti::Tensor::empty({max_batch, pixels}, tutti::DType::uint8, device)),
        labels_(tutti::Tensor::empty({max_batch}, tutti::DType::uint8, device)),
        rows_(tutti::Tensor::empty({max_batch}, tutti::DType::float32, device)),
        rows_here_(tutti::Tensor::empty({max_batch})) {}

  [[nodiscard]] std::string name() const override { return "cuBLAS"; }
  [[nodiscard]] tutti::Device device() const override { return device_; }

  void load(const PixelRows& rows, int batch, float* output) override {
    const auto pixels = static_cast<std::size_t>(rows.pixels);
    std::uint8_t* to = gathered_.values<std::uint8_t>().data();
    for (int row = 0; row < batch; ++row) {
      const std::uint8_t* image = rows.images + rows.indices[row] * pixels;
      std::copy(image, image + pixels, to + static_cast<std::size_t>(row) * pixels);
    }
    const std::size_t count = static_cast<std::size_t>(batch) * pixels;
    upload(to, count, images_);
    scale_pixels<<<blocks(count), kThreads, 0, stream()>>>(bytes_of(images_), count, rows.scale,
                                                           rows.shift, output);
    check(cudaGetLastError(), "scale_pixels");
  }

  void forward(const DenseLayer& layer, int batch, const float* input, float* output) override {
    cublas_.multiply(stream(), {layer.outputs, batch, layer.inputs},
                     {CUBLAS_OP_T, layer.weight, layer.inputs}, {CUBLAS_OP_N, input, layer.inputs},
                     output);
    const std::size_t count = static_cast<std::size_t>(batch) * layer.outputs;
    add_bias<<<blocks(count), kThreads, 0, stream()>>>(layer.bias, layer.outputs, count, layer.relu,
                                                       output);
    check(cudaGetLastError(), "add_bias");
  }

  void backward(const DenseGradient& gradient, const DenseLayer& layer, int batch,
                const float* input, const float* delta) override {
    cublas_.multiply(stream(), {layer.inputs, layer.outputs, batch},
                     {CUBLAS_OP_N, input, layer.inputs}, {CUBLAS_OP_T, delta, layer.outputs},
                     gradient.weight);
    sum_rows<<<blocks(static_cast<std::size_t>(layer.outputs)), kThreads, 0, stream()>>>(
        delta, layer.outputs, batch, gradient.bias);
    check(cudaGetLastError(), "sum_rows");
  }

  void backward_input(const DenseLayer& layer, int batch, const float* delta, const float* input,
                      float* input_delta) override {
    cublas_.multiply(stream(), {layer.inputs, batch, layer.outputs},
                     {CUBLAS_OP_N, layer.weight, layer.inputs}, {CUBLAS_OP_N, delta, layer.outputs},
                     input_delta);
    const std::size_t count = static_cast<std::size_t>(batch) * layer.inputs;
    mask_by_relu<<<blocks(count), kThreads, 0, stream()>>>(input, count, input_delta);
    check(cudaGetLastError(), "mask_by_relu");
  }

  double softmax_loss(int batch, int classes, const std::uint8_t* labels, float* logits) override {
    upload(labels, static_cast<std::size_t>(batch), labels_);
    softmax_delta<<<blocks(static_cast<std::size_t>(batch)), kThreads, 0, stream()>>>(
        batch, classes, bytes_of(labels_), logits, floats_of(rows_));
    check(cudaGetLastError(), "softmax_delta");
    return sum_of_rows(batch);
  }

  int count_correct(int batch, int classes, const std::uint8_t* labels,
                    const float* logits) override {
    upload(labels, static_cast<std::size_t>(batch), labels_);
    mark_correct<<<blocks(static_cast<std::size_t>(batch)), kThreads, 0, stream()>>>(
        batch, classes, bytes_of(labels_), logits, floats_of(rows_));
    check(cudaGetLastError(), "mark_correct");
    return static_cast<int>(sum_of_rows(batch));
  }

 private:
  static unsigned blocks(std::size_t count) {
    return static_cast<unsigned>((count + kThreads - 1) / kThreads);
  }
  static std::uint8_t* bytes_of(tutti::Tensor& tensor) {
    return reinterpret_cast<std::uint8_t*>(tensor.bytes());
  }
  static float* floats_of(tutti::Tensor& tensor) {
    return reinterpret_cast<float*>(tensor.bytes());
  }
  [[nodiscard]] cudaStream_t stream() const {
    return static_cast<cudaStream_t>(tutti::stream_of(device_));
  }

  /// Copies to the first elements of a tensor, in the stream's turn; `from` may be reused at once.
  void upload(const std::uint8_t* from, std::size_t count, tutti::Tensor& to) {
    const tutti::Shape shape{static_cast<std::int64_t>(count)};
    tutti::TensorView(to.bytes(), shape, tutti::DType::uint8, device_)
        .copy_from(tutti::view(from, shape));
  }

  double sum_of_rows(int batch) {
    const tutti::Shape shape{batch};
    const tutti::TensorView here = tutti::view(rows_here_.values<float>().data(), shape);
    here.copy_from(tutti::ConstTensorView(rows_.bytes(), shape, tutti::DType::float32, device_));
    double sum = 0.0;
    for (const float value : here.values<float>()) sum += value;
    return sum;
  }

  tutti::Device device_;
  Cublas cublas_;
  tutti::Tensor gathered_;  // images of the batch, on the CPU
  tutti::Tensor images_;
  tutti::Tensor labels_;
  tutti::Tensor rows_;  // a number for each row of the batch
  tutti::Tensor rows_here_;
};

}  // namespace

std::unique_ptr<MlpArithmetic> gpu_arithmetic(tutti::Device device, int pixels, int max_batch) {
  if (device.index >= tutti::num_gpus()) throw_unusable(tutti::describe_gpus());
  check(cudaSetDevice(device.index), "cudaSetDevice");
  return std::make_unique<GpuArithmetic>(device, pixels, max_batch);
}

}  // namespace apps
