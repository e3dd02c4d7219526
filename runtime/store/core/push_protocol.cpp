// SPDX-License-Identifier: Apache-2.0
#include "runtime/store/core/push_protocol.hpp"

#include "tutti/error.hpp"

#include "runtime/base/digest.hpp"

namespace tutti {

void require_unscaled(const UpdateRule& rule, const GradientCompression& compression) {
  if (rule.scaler == nullptr || !compression.is_on()) return;
  throw Error(ErrorCode::invalid_argument,
              scaler_refusal("for gradients without compression, whose residuals would keep what "
                             "is not finite; set no compression, or no such option"));
}

std::string PushAnnouncement::Describe::operator()() const {
  return call_to_string(push.call_, push.entries_) + push.rule_.describe() +
         push.compression_.describe();
}

collectives::Operation PushAnnouncement::operation(const char* call,
                                                   std::span<Entry* const> entries,
                                                   std::uint64_t digest) {
  call_ = call;
  entries_ = entries;
  return {.kind = collectives::Kind::allreduce,
          .digest = Digest().add(fingerprint_).add(digest).value(),
          .segments = {},
          .describe = describe_,
          .first_key = entries.empty() ? nullptr : &entries[0]->key,
          .keys = entries.size(),
          .verb = collectives::Verb::push};
}

}  // namespace tutti
