// SPDX-License-Identifier: Apache-2.0
// Elementary functions made of + - * / alone. libm's differ between machines in the last place, and
// ranks whose learning rates differ in the last place no longer have equal weights.
#pragma once

#include <cstdint>

namespace tutti {

/// By repeated squaring.
double power(double base, std::uint64_t exponent);
/// For base >= 0 and exponent > 0.
double power(double base, double exponent);

/// The natural logarithm of a positive, normal number.
double natural_log(double value);
/// e^value; 0 below the smallest normal number.
double exponential(double value);
/// cos(2 pi turns).
double cosine_of_turns(double turns);

}  // namespace tutti
