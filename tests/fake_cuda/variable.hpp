// SPDX-License-Identifier: Apache-2.0
// Environment variables that a test of ranks sets for NCCL.
#pragma once

#include <cstdlib>
#include <string>

#include "tests/support/mpi_test.hpp"

namespace test {

/// An environment variable of this process, as long as it lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

/// NCCL wants a GPU per rank, and takes ranks for neighbours by this name of their host.
inline Variable host_of_its_own() { return {"NCCL_HOSTID", "rank" + std::to_string(test::rank())}; }

}  // namespace test
