// SPDX-License-Identifier: Apache-2.0
// Access to other ranks' memory and events, for ranks that are threads: all of them share both.
#include <cstring>

#include "tests/support/fake_accelerator.hpp"

namespace test {

namespace {

class FakePeerAccess final : public gpus::PeerAccess {
 public:
  explicit FakePeerAccess(FakeAccelerator& accelerator) : accelerator_(accelerator) {}

  gpus::PeerName name_of_memory(int /*device*/, std::byte* memory) override {
    return name_of(memory);
  }
  std::byte* open_memory(int device, const gpus::PeerName& name) override {
    accelerator_.require_reach(device);
    return static_cast<std::byte*>(address_in(name));
  }
  void close_memory(std::byte* /*memory*/) noexcept override {}

  void* create_event(int device) override { return accelerator_.create_event(device); }
  gpus::PeerName name_of_event(int /*device*/, void* event) override { return name_of(event); }
  void* open_event(int /*device*/, const gpus::PeerName& name) override { return address_in(name); }
  void close_event(void* /*event*/) noexcept override {}

 private:
  static gpus::PeerName name_of(void* address) {
    gpus::PeerName name;
    std::memcpy(name.bytes.data(), &address, sizeof address);
    return name;
  }
  static void* address_in(const gpus::PeerName& name) {
    void* address = nullptr;
    std::memcpy(&address, name.bytes.data(), sizeof address);
    return address;
  }

  FakeAccelerator& accelerator_;
};

}  // namespace

std::unique_ptr<gpus::PeerAccess> make_fake_peer_access(FakeAccelerator& accelerator) {
  return std::make_unique<FakePeerAccess>(accelerator);
}

}  // namespace test
