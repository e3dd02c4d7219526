// SPDX-License-Identifier: Apache-2.0
#include "runtime/python/updaters.hpp"

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "runtime/python/arguments.hpp"
#include "runtime/python/array.hpp"
#include "runtime/python/calls.hpp"

namespace tutti::python {

namespace {

/// Lends arrays to an updater, and takes them back, even if it raises.
class Lending {
 public:
  Lending() = default;
  ~Lending() {
    for (const auto& lease : leases_) lease->is_over = true;
  }
  Lending(const Lending&) = delete;
  Lending& operator=(const Lending&) = delete;

  nb::object lend(Array array) {
    leases_.push_back(array.lease());
    return nb::cast(std::move(array));
  }
  /// Errors  user_code: the program has kept a view of them.
  void take_back(const Key& key) {
    bool is_kept = false;
    for (const auto& lease : leases_) {
      lease->is_over = true;
      is_kept = is_kept || lease->views != 0;
    }
    if (!is_kept) return;
    throw std::runtime_error("it kept a view of an array that it was given for key " +
                             to_string(key) +
                             ", whose memory is the library's again; keep a copy, "
                             "numpy.array(array)");
  }

 private:
  std::vector<std::shared_ptr<Lease>> leases_;
};

void require_callable(const nb::object& function, const char* expected) {
  if (PyCallable_Check(function.ptr()) != 0) return;
  throw Error(ErrorCode::invalid_argument,
              std::string("set_updater: expected a function, ") + expected + ", or None; got a " +
                  text_of(nb::object(function.type().attr("__name__"))));
}

nb::object key_of(const Key& key) {
  if (key.is_string()) return nb::str(key.text().c_str(), key.text().size());
  return nb::int_(key.number());
}

}  // namespace

Updater dense_updater(nb::object function, const Occupancy& store) {
  if (function.is_none()) return nullptr;
  require_callable(function, "updater(key, merged, stored)");
  return [function = shared(std::move(function)), &store](
             const Key& key, const ConstTensorView& merged, const TensorView& stored) {
    const InCallback callback(&store);
    Lending lending;
    nb::handle(function.get())(key_of(key), lending.lend(Array::lent(merged)),
                               lending.lend(Array::lent(stored)));
    lending.take_back(key);
  };
}

RowSparseUpdater row_updater(nb::object function, const Occupancy& store) {
  if (function.is_none()) return nullptr;
  require_callable(function, "rows(key, ids, rows, stored)");
  return [function = shared(std::move(function)), &store](
             const Key& key, const RowSparseView& merged, const TensorView& stored) {
    const InCallback callback(&store);
    Lending lending;
    const nb::object ids = lending.lend(Array::lent(merged.ids()));
    const nb::object rows = lending.lend(Array::lent(merged.rows()));
    nb::handle(function.get())(key_of(key), ids, rows, lending.lend(Array::lent(stored)));
    lending.take_back(key);
  };
}

}  // namespace tutti::python
