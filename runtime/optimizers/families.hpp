// SPDX-License-Identifier: Apache-2.0
// The families of optimizers. Each is one header, which ends with the list of its optimizers, and
// is compiled by itself: family.cpp.in for CPUs, runtime/cuda/family.cu.in for GPUs.
#pragma once

namespace tutti::optimizer {

struct DescentFamily;
struct AdaptiveFamily;
struct AdamFamily;
struct LayerwiseFamily;
struct TorchFamily;

template <class... Family>
struct Families {};
using AllFamilies =
    Families<DescentFamily, AdaptiveFamily, AdamFamily, LayerwiseFamily, TorchFamily>;

}  // namespace tutti::optimizer
