// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/core/first_values.hpp"

#include <optional>
#include <string>
#include <vector>

#include "runtime/store/core/call_totals.hpp"
#include "runtime/store/core/host_copies.hpp"
#include "runtime/store/core/together.hpp"

namespace tutti {

void broadcast_first_values(Group& group, const char* call, std::span<Entry> entries,
                            std::span<const KeyGroup<ConstTensorView>> values) {
  const bool is_root = group.topology().rank == 0;
  std::vector<Entry*> fresh;
  std::string text;
  std::uint64_t digest = 0;
  std::optional<HostCopies> host_copies;
  std::vector<Tensor> from_gpus;  // rank 0's values on GPUs
  std::vector<collectives::Segment> segments;
  throw_together(group.engine(), call, [&] {
    for (Entry& entry : entries) fresh.push_back(&entry);
    text = call_to_string(call, fresh);  // names the keys where they will live
    digest = digest_of(fresh);
    host_copies.emplace(group, fresh);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      Entry& entry = entries[i];
      const ConstTensorView& value = values[i].tensors.front();
      const std::byte* input = is_root ? value.bytes() : entry.replica.bytes();
      if (is_root && value.device().kind == DeviceKind::gpu) {
        from_gpus.push_back(Tensor::empty(value.shape(), value.dtype()));
        group.copy(from_gpus.back(), value);
        input = from_gpus.back().bytes();
      }
      segments.push_back({input, entry.replica.bytes(), entry.shape().count(), entry.dtype(),
                          /*source=*/0});
    }
  });
  const auto describe = [&] { return text; };
  group.engine().statistics().count_bytes(bytes_of(fresh));
  group.engine().run({.kind = collectives::Kind::broadcast,
                      .digest = digest,
                      .segments = segments,
                      .describe = describe,
                      .first_key = fresh.empty() ? nullptr : &fresh[0]->key,
                      .keys = fresh.size(),
                      .verb = collectives::Verb::init});
  fail_together(group.engine(), [&] { host_copies->write_back(); });
}

}  // namespace tutti
