// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

namespace tutti::python {

namespace nb = nanobind;

/// Makes functions and methods of the module raise TypeError with one sentence for arguments that
/// they do not take: what was expected, and what was given.
void shorten_type_errors(const nb::module_& module);

}  // namespace tutti::python
