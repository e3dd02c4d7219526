// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

namespace tutti::python {

namespace nb = nanobind;

/// Arguments that a function or method of the module does not take raise TypeError with one
/// sentence: what was expected, and what was given.
void shorten_type_errors(const nb::module_& module);

}  // namespace tutti::python
