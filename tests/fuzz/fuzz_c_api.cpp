// SPDX-License-Identifier: Apache-2.0
// Calls of the C API with arguments of any value; pointers are either null or good. Each call
// returns a status, and a text where it is not 0.
#include <cstring>
#include <string>

#include "tutti/tutti.h"

#include "fuzz/target.hpp"

namespace {

/// Takes values off the input; zeros after its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
  [[nodiscard]] bool empty() const { return size_ == 0; }
  template <class Value>
  Value take() {
    Value value{};
    const std::size_t bytes = sizeof value < size_ ? sizeof value : size_;
    std::memcpy(&value, data_, bytes);
    data_ += bytes;
    size_ -= bytes;
    return value;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

void expect_text(int status) {
  if (status != 0 && std::strlen(tutti_last_error()) == 0) __builtin_trap();
}

/// A tensor over `memory`, whose extents are small or absurd: absurd ones must be refused, or hold
/// no element.
struct AnyTensor {
  std::int64_t shape[4];
  tutti_tensor tensor;
};

void fill(AnyTensor& any, Input& input, float* memory) {
  std::memset(&any.tensor, 0, sizeof any.tensor);
  for (std::int64_t& extent : any.shape) {
    const auto small = input.take<std::int8_t>();
    extent = small > 3 ? 3 : small;
  }
  any.tensor.data = input.take<std::uint8_t>() % 8 == 0 ? nullptr : memory;
  any.tensor.shape = input.take<std::uint8_t>() % 16 == 0 ? nullptr : any.shape;
  any.tensor.ndim = input.take<std::int8_t>() % 5;
  any.tensor.dtype = input.take<std::int8_t>() % 10;
}

int keep_left(void*, const tutti_tensor*, const tutti_tensor*) { return 0; }

/// A call of a communicator of one rank, by its number.
int call_communicator(tutti_communicator* ranks, int number, const tutti_tensor* in,
                      const tutti_tensor* out) {
  std::int64_t counts[] = {number % 5};
  const std::int64_t* const list = number % 6 == 0 ? nullptr : counts;
  const tutti_user_op op = {.name = number % 7 == 0 ? nullptr : "left",
                            .combine = number % 9 == 0 ? nullptr : keep_left,
                            .user_data = nullptr,
                            .elementwise = number % 3};
  switch ((number + 128) % 12) {
    case 0:
      return tutti_communicator_gather(ranks, in, out, number % 2);
    case 1:
      return tutti_communicator_scatter(ranks, in, out, number % 2);
    case 2:
      return tutti_communicator_exchange_counts(ranks, number, number % 2 == 0 ? nullptr : counts);
    case 3:
      return tutti_communicator_allgatherv(ranks, in, out, list);
    case 4:
      return tutti_communicator_reduce_scatterv(ranks, in, out, list, number % 6);
    case 5:
      return tutti_communicator_alltoall(ranks, in, out);
    case 6:
      return tutti_communicator_alltoallv(ranks, in, counts, out, list);
    case 7:
      return tutti_communicator_send(ranks, in, number);
    case 8:
      return tutti_communicator_receive(ranks, out, number);
    case 9:
      return tutti_communicator_reduce_by(ranks, in, out, number % 2, &op);
    case 10:
      return tutti_communicator_reduce_scatter_by(ranks, in, out, &op);
    default:
      return tutti_communicator_allreduce_by(ranks, in, out, &op);
  }
}

/// Where the next handle goes; a call before it may be under way still.
tutti_pending** replaced(tutti_pending*& pending) {
  tutti_pending_destroy(pending);
  pending = nullptr;
  return &pending;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static float memory[3 * 3 * 3 * 3 * 2];
  Input input(data, size);
  static const char* const kSettings[] = {"TUTTI_ARENA_BYTES=4M", "TUTTI_LOG=quiet", nullptr};
  tutti_kvstore* kv = nullptr;
  if (tutti_kvstore_create("local", kSettings, &kv) != 0) __builtin_trap();
  tutti_communicator* ranks = nullptr;
  if (tutti_communicator_self(kSettings, &ranks) != 0) __builtin_trap();
  tutti_pending* pending = nullptr;
  for (int call = 0; call < 12 && !input.empty(); ++call) {
    AnyTensor value{};
    AnyTensor output{};
    fill(value, input, memory);
    fill(output, input, memory);
    const auto number = input.take<std::int8_t>();
    const tutti_tensor values[] = {value.tensor, output.tensor};
    const tutti_tensor outputs[] = {output.tensor};
    tutti_item item{};
    item.key.number = number % 4;
    item.values = number % 7 == 0 ? nullptr : values;
    item.num_values = number % 3;
    item.outputs = number % 5 == 0 ? nullptr : outputs;
    item.num_outputs = number % 2;
    const int items = input.take<std::int8_t>() % 3 == 0 ? -1 : 1;
    const tutti_async_options options = {number % 5, number % 2};
    switch (input.take<std::uint8_t>() % 9) {
      case 0:
        expect_text(tutti_kvstore_init(kv, &item, items));
        break;
      case 1:
        expect_text(tutti_kvstore_push(kv, &item, items, number));
        break;
      case 2:
        expect_text(tutti_kvstore_pull(kv, &item, items, number & 1));
        break;
      case 3:
        expect_text(tutti_kvstore_push_async(kv, &item, items, number % 3 == 0 ? nullptr : &options,
                                             replaced(pending)));
        break;
      case 4:
        expect_text(tutti_kvstore_pushpull_async(kv, &item, items, &options, replaced(pending)));
        break;
      case 5:
        expect_text(tutti_pending_wait(pending));
        break;
      case 6:
        expect_text(call_communicator(ranks, number, values, number % 11 == 0 ? nullptr : outputs));
        break;
      default:
        expect_text(tutti_kvstore_push(kv, items > 0 ? nullptr : &item, 1, 0));
        break;
    }
  }
  tutti_communicator_destroy(ranks);
  tutti_kvstore_barrier(kv);
  tutti_kvstore_destroy(kv);
  tutti_pending_destroy(pending);
  return 0;
}
