// SPDX-License-Identifier: Apache-2.0
#include "support/idle_time.hpp"

#include <algorithm>
#include <fstream>
#include <functional>
#include <string>
#include <unistd.h>
#include <vector>

namespace apps {

namespace {

/// The seconds for which all processors together have been busy since the machine started; negative
/// if that cannot be read. See proc(5).
double busy_seconds() {
  std::ifstream file("/proc/stat");
  std::string name;
  double user = 0;
  double nice = 0;
  double system = 0;
  double idle = 0;
  double waiting = 0;
  double interrupts = 0;
  double soft = 0;
  file >> name >> user >> nice >> system >> idle >> waiting >> interrupts >> soft;
  if (!file || name != "cpu") return -1;
  return (user + nice + system + interrupts + soft) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::int64_t id_of_machine() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return static_cast<std::int64_t>(std::hash<std::string>()(id) >> 1);
}

}  // namespace

IdleTime::IdleTime(tutti::Communicator& world) : world_(world) {
  std::int64_t own = id_of_machine();
  std::vector<std::int64_t> all(static_cast<std::size_t>(world.size()));
  world.allgather(tutti::view(&own, {1}), tutti::view(all.data(), {world.size()}));
  ranks_ = static_cast<double>(std::ranges::count(all, own));
}

void IdleTime::begin() { begun_ = busy_seconds(); }

void IdleTime::end(double seconds) {
  const double now = busy_seconds();
  is_readable_ = is_readable_ && now >= 0 && begun_ >= 0;
  idle_ += seconds - (now - begun_) / ranks_;
  ++stretches_;
}

double IdleTime::per_stretch() {
  double readable = is_readable_ ? 1 : 0;
  world_.allreduce(tutti::view(&readable, {1}), tutti::ReduceOp::min);
  double idle = std::max(idle_, 0.0) / std::max(stretches_, 1);
  world_.allreduce(tutti::view(&idle, {1}), tutti::ReduceOp::avg);
  return readable == 0 ? -1 : idle;
}

}  // namespace apps
