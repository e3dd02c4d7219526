// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/host_rig.hpp"

#include "runtime/gpu/kernels/family.hpp"
#include "runtime/gpu/kernels/table_kernels.hpp"
#include "runtime/optimizers/adam.hpp"
#include "runtime/optimizers/adaptive.hpp"
#include "runtime/optimizers/descent.hpp"
#include "runtime/optimizers/layerwise.hpp"

namespace test {

namespace {

class HostRig final : public Rig {
 public:
  explicit HostRig(HostWork& work) : work_(work), kernels_(&work) {}

  tutti::gpus::Kernels& kernels() override { return kernels_; }
  std::byte* allocate(std::size_t bytes) override { return HostMachine(&work_).allocate(bytes); }
  void release(std::byte* memory) override { HostMachine(&work_).release(memory); }
  void write(std::byte* to, const void* from, std::size_t bytes) override { move(to, from, bytes); }
  void read(void* to, const std::byte* from, std::size_t bytes) override { move(to, from, bytes); }

 private:
  void move(void* to, const void* from, std::size_t bytes) {
    work_.finish();
    if (bytes > 0) std::memcpy(to, from, bytes);
  }

  HostWork& work_;
  tutti::gpus::kernels::TableKernels<HostMachine> kernels_;
};

}  // namespace

std::unique_ptr<Rig> make_host_rig(HostWork& work) { return std::make_unique<HostRig>(work); }

std::unique_ptr<Rig> make_rig() {
  static HostWork work;  // all rigs share it
  return make_host_rig(work);
}

}  // namespace test
