// SPDX-License-Identifier: Apache-2.0
// The main function of tests without mpirun, compiled once for all of them.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
