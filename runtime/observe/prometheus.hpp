// SPDX-License-Identifier: Apache-2.0
// Statistics in the format of Prometheus's textfile collector.
#pragma once

#include <string>

#include "tutti/statistics.hpp"

namespace tutti::observe {

/// Returns the counters of one rank in Prometheus's text format.
std::string prometheus_text(const Statistics& statistics, const std::string& host);

}  // namespace tutti::observe
