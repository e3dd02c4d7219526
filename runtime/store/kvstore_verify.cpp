// SPDX-License-Identifier: Apache-2.0
// Comparing all that a store holds.
#include "runtime/base/digest.hpp"
#include "runtime/store/device/on_host.hpp"
#include "runtime/store/entering.hpp"
#include "runtime/store/verify/comparison.hpp"

namespace tutti {

VerifyResult KVStore::Impl::verify() {
  const Entering entering(*this, Entering::Kind::change, "verify");
  const std::vector<Entry*> entries = entries_in_order();
  Digest digest;
  for (const Entry* entry : entries) {
    digest.add(entry->key).add(entry->shape(), entry->dtype()).add(entry->states.size());
  }
  announce(collectives::Verb::verify, "verify", digest.value());
  return compare(entries);
}

/// Of entries that are the same on every rank.
VerifyResult KVStore::Impl::compare(std::span<Entry* const> entries) {
  OnHost on_host(*group, entries);
  VerifyResult result = Comparison(*group).run(entries, rule_.optimizer());
  if (result.healed > 0) on_host.bring_back();
  healed_ += result.healed;
  sparse_push_.forget_sample();
  result.healed_since_creation = healed_ + push_.healed() + sparse_push_.healed();
  return result;
}

}  // namespace tutti
