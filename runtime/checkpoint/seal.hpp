// SPDX-License-Identifier: Apache-2.0
// A text that carries the digest of its other bytes, so that a change of any byte shows.
//
//   {"xxh3":"0000000000000000",...    before sealing: zeros after a known prefix
//   {"xxh3":"5f2b09c3a1d4e678",...    sealed: the XXH3-64 digest of the text with the zeros
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tutti::checkpoint {

inline constexpr std::string_view kUnsealed = "0000000000000000";

/// 16 hexadecimal digits.
std::string in_hex(std::uint64_t number);

/// XXH3-64, as 16 hexadecimal digits.
std::string digest_in_hex(std::string_view bytes);

/// Seals a text that has kUnsealed at `position`.
void seal(std::string& text, std::size_t position);

/// The digits of a sealed text; empty if any of its bytes was changed.
std::string_view seal_of(std::string_view text, std::size_t position);

}  // namespace tutti::checkpoint
