// SPDX-License-Identifier: Apache-2.0
// All of Tutti.
#pragma once

#include "tutti/arguments.hpp"
#include "tutti/checkpoint.hpp"
#include "tutti/communicator.hpp"
#include "tutti/compression.hpp"
#include "tutti/dtype.hpp"
#include "tutti/error.hpp"
#include "tutti/gpu.hpp"
#include "tutti/key.hpp"
#include "tutti/kvstore.hpp"
#include "tutti/launch.hpp"
#include "tutti/optimizer.hpp"
#include "tutti/optimizers.hpp"
#include "tutti/preemption.hpp"
#include "tutti/program.hpp"
#include "tutti/row_sparse.hpp"
#include "tutti/schedule.hpp"
#include "tutti/settings.hpp"
#include "tutti/shape.hpp"
#include "tutti/statistics.hpp"
#include "tutti/tensor.hpp"
