// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/core/push_protocol.hpp"

#include "runtime/base/digest.hpp"

namespace tutti {

std::string PushAnnouncement::Describe::operator()() const {
  return call_to_string(push.call_, push.entries_) + push.rule_.describe() +
         push.compression_.describe();
}

collectives::Operation PushAnnouncement::operation(const char* call,
                                                   std::span<Entry* const> entries,
                                                   std::uint64_t digest) {
  call_ = call;
  entries_ = entries;
  const std::uint64_t fingerprint = rule_.fingerprint() ^ compression_.fingerprint();
  return {.kind = collectives::Kind::allreduce,
          .digest = Digest().add(fingerprint).add(digest).value(),
          .segments = {},
          .describe = describe_,
          .first_key = entries.empty() ? nullptr : &entries[0]->key,
          .keys = entries.size(),
          .verb = collectives::Verb::push};
}

}  // namespace tutti
