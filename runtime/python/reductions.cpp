// SPDX-License-Identifier: Apache-2.0
// all_reduce of torch.distributed, which a program waits for, in one call from Python.
#include <cstddef>
#include <cstdint>
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/python/arguments.hpp"
#include "runtime/python/communicator.hpp"
#include "runtime/python/dlpack.hpp"
#include "runtime/python/given.hpp"

namespace tutti::python {

namespace {

/// torch's operations, with the names that they have here.
using Operations = std::vector<std::pair<nb::object, std::string>>;

/// Reduces tensors of one group in place. torch's tensors tell by DLPack's table in one call what
/// their attributes tell in six, and nothing is given away: the caller keeps them.
class Reductions {
 public:
  /// `tensor_type`: torch.Tensor. `operations`: the most frequent first. `most_bytes`: tensors with
  /// more are left to the caller.
  Reductions(nb::object ranks, const nb::object& tensor_type, const Operations& operations,
             std::size_t most_bytes)
      : object_(std::move(ranks)),
        ranks_(nb::cast<PyCommunicator&>(object_)),
        tensor_type_(tensor_type),
        is_neg_(tensor_type.attr("is_neg")),
        reduce_op_(nb::steal(PyUnicode_InternFromString("reduceOp"))),
        table_(table_of(tensor_type)),
        most_bytes_(most_bytes) {
    for (const auto& [theirs, name] : operations) {
      operations_.emplace_back(theirs, read_operation(name));
    }
  }

  /// Carries out ProcessGroup.allreduce(tensors, options), and returns true. False, and nothing has
  /// happened: it is not one dense tensor in the host's memory whose elements the library reduces
  /// as they are, and the caller knows what to do, or how to say what is wrong.
  bool allreduce(nb::handle tensors, nb::handle options) {
    const std::optional<TensorView> tensor = dense(tensors);
    if (!tensor || tensor->size_bytes() > most_bytes_) return false;
    const std::optional<ReduceOp> op = operation(options);
    if (!op) return false;
    const Occupancy::Turn turn(ranks_.occupancy(), "all_reduce");
    Communicator& ranks = ranks_.get();
    read_on_all(ranks, [&] { require_aligned(*tensor, [] { return std::string("input"); }); });
    blocking([&] { ranks.allreduce(*tensor, *op); });
    return true;
  }

 private:
  [[nodiscard]] std::optional<TensorView> dense(nb::handle tensors) const {
    if (table_ == nullptr || !PyList_CheckExact(tensors.ptr()) || PyList_Size(tensors.ptr()) != 1) {
      return std::nullopt;
    }
    PyObject* const given = PyList_GetItem(tensors.ptr(), 0);
    // Types derived from Tensor, such as those of distributed tensors, have no memory of their own.
    if (reinterpret_cast<PyObject*>(Py_TYPE(given)) != tensor_type_.ptr()) return std::nullopt;
    dlpack::Tensor tensor;
    if (table_->tensor_from_object(given, &tensor) != 0) {  // a sparse tensor
      PyErr_Clear();
      return std::nullopt;
    }
    const auto dtype = dlpack::dtype_of(tensor.dtype);
    const bool is_plain = tensor.device.kind == dlpack::kCpu && dlpack::is_row_major(tensor) &&
                          static_cast<std::size_t>(tensor.dimensions) <= Shape::kMaxDimensions;
    if (!dtype || !is_plain || is_negated(given)) return std::nullopt;
    const auto dimensions = static_cast<std::size_t>(tensor.dimensions);
    return TensorView(static_cast<std::byte*>(tensor.data) + tensor.byte_offset,
                      Shape(std::span<const std::int64_t>(tensor.shape, dimensions)), *dtype);
  }
  /// True if the memory of a tensor has its elements with the other sign.
  [[nodiscard]] bool is_negated(nb::handle tensor) const {
    return !nb::object(is_neg_(tensor)).is(nb::handle(Py_False));
  }
  [[nodiscard]] std::optional<ReduceOp> operation(nb::handle options) const {
    const nb::object given = options.attr(reduce_op_);
    for (const auto& [theirs, op] : operations_) {
      if (given.equal(theirs)) return op;
    }
    return std::nullopt;
  }

  nb::object object_;
  PyCommunicator& ranks_;
  nb::object tensor_type_;
  nb::object is_neg_;
  nb::object reduce_op_;
  const dlpack::Table* table_;
  std::size_t most_bytes_;
  std::vector<std::pair<nb::object, ReduceOp>> operations_;
};

}  // namespace

void bind_reductions(nb::module_& module) {
  nb::class_<Reductions>(module, "_Reductions")
      .def(nb::init<nb::object, const nb::object&, const Operations&, std::size_t>(),
           nb::arg("ranks"), nb::arg("tensor_type"), nb::arg("operations"), nb::arg("most_bytes"))
      .def("allreduce", &Reductions::allreduce, nb::arg("tensors"), nb::arg("options"));
}

}  // namespace tutti::python
