// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/device/pushable.hpp"

#include <optional>

#include "runtime/store/core/push_protocol.hpp"

namespace tutti {

void require_pushable(std::span<const PushItem> items, int ranks, const UpdateRule& rule,
                      const GradientCompression& compression) {
  const Device first = items.front().entry->replica.device();
  const Optimizer* optimizer = rule.optimizer();
  std::optional<Device> asked;  // the last device whose kernels were asked
  for (const PushItem& item : items) {
    const Entry& entry = *item.entry;
    const Device device = entry.replica.device();
    const auto refuse = [&](const char* why) {
      throw_invalid_argument(entry, "it is on " + to_string(device) +
                                        ", and the first key of the list on " + to_string(first) +
                                        "; " + why);
    };
    if (device.kind != first.kind) {
      refuse("push keys on the cpu and keys on GPUs by two calls");
    }
    if (ranks > 1 && device != first) refuse("in a store of several ranks each has one GPU");
    compression.require_packable(entry);
    if (optimizer == nullptr) continue;
    require_updatable(*optimizer, entry);
    if (asked == device) continue;
    asked = device;
    require_kernels(*optimizer, entry);
  }
  require_unscaled(rule, compression);
}

}  // namespace tutti
