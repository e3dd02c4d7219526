// SPDX-License-Identifier: Apache-2.0
// The order between the library's work on a GPU and that of the libraries whose arrays it borrows.
#pragma once

#include <nanobind/nanobind.h>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/python/dlpack.hpp"

namespace tutti::python {

namespace nb = nanobind;

/// The GPU that holds an array, by __dlpack_device__; nothing if the array is elsewhere, or on a
/// GPU that this process does not have.
std::optional<int> gpu_of(nb::handle given);

/// The stream in which the array's library works with it now: from DLPack's table, from torch, or
/// from __cuda_array_interface__, which CuPy and Numba have. Nothing if none of them tells.
std::optional<void*> current_stream(nb::handle given, const dlpack::Table* table, int gpu);

/// The streams of the arrays that a call borrows. While the call begins, the library's stream of
/// the GPU waits for each of them; when it ends, each waits for the library's. So in its own stream
/// a program may free or write arrays that it has pushed, and read arrays that it has pulled.
class BorrowedStreams {
 public:
  /// Errors  invalid_argument: a stream that is being captured into a graph.
  void add(int gpu, void* stream);
  /// Adds an array whose stream is unknown: end() waits until the library is done with it.
  void add_unknown(int gpu);
  /// Called when the call has put its work into the library's streams.
  void end() noexcept;

 private:
  void add(int gpu, std::optional<void*> stream);

  std::vector<std::pair<int, std::optional<void*>>> borrowed_;
};

}  // namespace tutti::python
