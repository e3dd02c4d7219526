// SPDX-License-Identifier: Apache-2.0
// Functions on ASCII letters and digits that do not depend on the locale: in Turkish, i and I are
// no pair.
#pragma once

namespace tutti {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }
constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace tutti
