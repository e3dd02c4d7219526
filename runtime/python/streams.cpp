// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/streams.hpp"

#include <algorithm>
#include <cstdint>

#include "tutti/error.hpp"
#include "tutti/gpu.hpp"

namespace tutti::python {

namespace {

/// True for tensors of torch in such memory: they tell where they are in a hundredth of the time of
/// __dlpack_device__().
bool is_of_torch(nb::handle given, bool on_gpu) {
  return nb::object(nb::getattr(given, "is_cuda", nb::none())).is(nb::bool_(on_gpu));
}

std::optional<void*> stream_of_torch(int gpu) {
  const nb::dict modules = nb::cast<nb::dict>(nb::module_::import_("sys").attr("modules"));
  if (!modules.contains("torch")) return std::nullopt;
  const nb::object stream = modules["torch"].attr("cuda").attr("current_stream")(gpu);
  return reinterpret_cast<void*>(nb::cast<std::uintptr_t>(stream.attr("cuda_stream")));
}

/// The stream in __cuda_array_interface__. 1 is the default stream, whose handle is null; 2 is
/// cudaStreamPerThread, whose handle it is.
std::optional<void*> stream_of_interface(nb::handle given) {
  const nb::object found = nb::getattr(given, "__cuda_array_interface__", nb::none());
  if (!nb::isinstance<nb::dict>(found)) return std::nullopt;
  const auto interface = nb::borrow<nb::dict>(found);
  std::uintptr_t stream = 0;
  if (!interface.contains("stream") || !nb::try_cast(interface["stream"], stream)) {
    return std::nullopt;
  }
  return reinterpret_cast<void*>(stream == 1 ? 0 : stream);
}

}  // namespace

std::optional<int> gpu_of(nb::handle given) {
  if (is_of_torch(given, false) || !nb::hasattr(given, "__dlpack_device__")) return std::nullopt;
  const nb::object device = given.attr("__dlpack_device__")();
  int kind = 0;
  int index = 0;
  if (!nb::isinstance<nb::tuple>(device) || nb::len(device) != 2 ||
      !nb::try_cast(device[0], kind) || !nb::try_cast(device[1], index) || kind != dlpack::kCuda ||
      index < 0 || index >= num_gpus()) {
    return std::nullopt;
  }
  return index;
}

std::optional<void*> current_stream(nb::handle given, const dlpack::Table* table, int gpu) {
  if (table != nullptr) {
    void* stream = nullptr;
    if (table->current_stream(dlpack::kCuda, gpu, &stream) == 0) return stream;
    PyErr_Clear();
  }
  if (is_of_torch(given, true)) return stream_of_torch(gpu);
  return stream_of_interface(given);
}

void BorrowedStreams::add(int gpu, std::optional<void*> stream) {
  const std::pair one(gpu, stream);
  if (std::ranges::find(borrowed_, one) == borrowed_.end()) borrowed_.push_back(one);
}

void BorrowedStreams::add(int gpu, void* stream) {
  if (stream == stream_of(tutti::gpu(gpu))) return;
  wait_for_stream(tutti::gpu(gpu), stream);
  add(gpu, std::optional(stream));
}

void BorrowedStreams::add_unknown(int gpu) { add(gpu, std::nullopt); }

/// Makes the streams of all arrays wait for the library's. An error of a GPU is told by the next
/// call of a store.
void BorrowedStreams::end() noexcept {
  for (const auto& [gpu, stream] : std::exchange(borrowed_, {})) {
    try {
      const nb::gil_scoped_release released;
      stream ? let_stream_wait(tutti::gpu(gpu), *stream) : synchronize(tutti::gpu(gpu));
    } catch (const Error&) {
    }
  }
}

}  // namespace tutti::python
