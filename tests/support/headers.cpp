// SPDX-License-Identifier: Apache-2.0
// For the compiled headers.hpp, which CMake makes for a program.
