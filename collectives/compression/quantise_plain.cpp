// SPDX-License-Identifier: Apache-2.0
// The loops of gradient compression for the instructions that every processor of the architecture
// has.
#include "collectives/compression/quantise_loops.hpp"

TUTTI_DEFINE_QUANTISE(plain_quantise, )
