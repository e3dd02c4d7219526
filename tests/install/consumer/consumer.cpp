// SPDX-License-Identifier: Apache-2.0
// A user's program: a store, an optimizer of its own, and an error, which all cross the border of
// the shared library.
#include <iostream>
#include <memory>
#include <unordered_set>

#include <tutti/tutti.hpp>

namespace {

/// Takes the sign of the gradient.
class SignDescent final : public tutti::Optimizer {
 public:
  SignDescent() : Optimizer("sign-descent", {.learning_rate = 0.5}) {}
  [[nodiscard]] int num_states() const override { return 0; }
  void update(const tutti::UpdateStep& step, const tutti::ElementRange<float>& range) const final {
    descend(step, range);
  }
  void update(const tutti::UpdateStep& step, const tutti::ElementRange<double>& range) const final {
    descend(step, range);
  }

 private:
  template <class Real>
  static void descend(const tutti::UpdateStep& step, const tutti::ElementRange<Real>& range) {
    const auto rate = static_cast<Real>(step.learning_rate);
    for (std::size_t i = 0; i < range.weight.size(); ++i) {
      range.weight[i] -= range.gradient[i] < 0 ? -rate : rate;
    }
  }
};

int train() {
  auto kv = tutti::KVStore::create("dist");
  kv.init("weight", tutti::Tensor::full({2, 3}, 2.0));
  kv.set_optimizer(std::make_shared<SignDescent>());
  tutti::Tensor gradient = kv.allocate({2, 3});
  gradient.fill(kv.rank() + 1);
  kv.push("weight", gradient);
  try {
    kv.push("bias", gradient);
  } catch (const tutti::Error& error) {
    if (kv.rank() == 0) std::cout << to_string(error.code()) << "\n";
  }
  const std::unordered_set<tutti::Key> keys{"weight", "bias"};
  const auto float_bytes =
      tutti::visit(tutti::DType::float32, []<class T>(T) { return sizeof(T); });
  if (kv.rank() == 0) {
    std::cout << "consumer of " << kv.num_workers()
              << " ranks: " << kv.view("weight").values<float>()[0] + keys.size() + float_bytes
              << "\n"
              << tutti::optimizer::create("adam,learning_rate=0.25")->describe() << std::endl;
  }
  return 0;
}

}  // namespace

int main() { return tutti::run_program("consumer", train); }
