// SPDX-License-Identifier: Apache-2.0
#include "collectives/compression/quantise.hpp"

namespace tutti::collectives {

const QuantiseKernels* quantise_with(Isa isa) noexcept {
  if (!has_isa(isa)) return nullptr;
#if defined(__x86_64__)
  if (isa == Isa::avx512) return &avx512_quantise();
  if (isa == Isa::avx2) return &avx2_quantise();
#endif
  return &plain_quantise();
}

const QuantiseKernels& quantise() noexcept {
  static const QuantiseKernels* const chosen = [] {
    for (const Isa isa : {Isa::avx512, Isa::avx2}) {
      if (const QuantiseKernels* kernels = quantise_with(isa)) return kernels;
    }
    return &plain_quantise();
  }();
  return *chosen;
}

}  // namespace tutti::collectives
