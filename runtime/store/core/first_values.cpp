// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/core/first_values.hpp"

#include <vector>

#include "runtime/store/core/host_copies.hpp"

namespace tutti {

void broadcast_first_values(Group& group, const char* call, std::span<Entry> entries,
                            std::span<const KeyGroup<ConstTensorView>> values) {
  std::vector<Entry*> fresh;
  for (Entry& entry : entries) fresh.push_back(&entry);
  const std::uint64_t digest = digest_of(fresh);
  const std::string text = call_to_string(call, fresh);
  const auto describe = [&] { return text; };
  const bool is_root = group.topology().rank == 0;
  HostCopies host_copies(group, fresh);
  std::vector<Tensor> from_gpus;  // rank 0's values that are there
  std::vector<collectives::Segment> segments;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    Entry& entry = entries[i];
    const ConstTensorView& value = values[i].tensors.front();
    const std::byte* input = is_root ? value.bytes() : entry.replica.bytes();
    if (is_root && value.device().kind == DeviceKind::gpu) {
      from_gpus.push_back(Tensor::empty(value.shape(), value.dtype()));
      from_gpus.back().view().copy_from(value);
      input = from_gpus.back().bytes();
    }
    segments.push_back({input, entry.replica.bytes(), entry.shape().count(), entry.dtype(),
                        /*source=*/0});
  }
  group.engine().run({.kind = collectives::Kind::broadcast,
                      .digest = digest,
                      .segments = segments,
                      .describe = describe,
                      .first_key = fresh.empty() ? nullptr : &fresh[0]->key,
                      .keys = fresh.size()});
  host_copies.write_back();
}

}  // namespace tutti
