// SPDX-License-Identifier: Apache-2.0
// The source of the compiled headers.hpp, which CMake makes for a program.
