// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/machine.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <fstream>
#include <limits>
#include <numeric>
#include <sstream>
#include <unistd.h>
#include <vector>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <tutti/error.hpp>
#include <tutti/program.hpp>
#include <tutti/settings.hpp>

#include "apps/benchmark/backends.hpp"
#include "support/progress.hpp"

namespace apps::benchmark {

namespace {

constexpr std::size_t kUsualCacheBytes = std::size_t{32} << 20;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// The size of the first core's last cache, as Linux gives it. sysconf's number is for all sockets
/// together on some machines.
std::size_t last_level_cache() {
  std::size_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    const std::string folder =
        "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::string size = first_line(folder + "size");
    if (size.empty()) continue;
    try {
      largest = std::max(largest, tutti::parse_bytes(size));
    } catch (const tutti::Error&) {  // no size: taken as if it were not there
    }
  }
  return largest > 0 ? largest : kUsualCacheBytes;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t start = line.find(": ");
    if (start != std::string::npos) return line.substr(start + 2);
  }
  return "unknown";
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::string time_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::vector<Host> gather_hosts(MPI_Comm comm, int ranks) {
  std::vector<Host> hosts;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string name = text_of_rank(comm, host_name(), rank);
    const auto known = std::find_if(hosts.begin(), hosts.end(),
                                    [&](const Host& host) { return host.name == name; });
    if (known == hosts.end()) {
      hosts.push_back({name, 1});
    } else {
      ++known->ranks;
    }
  }
  return hosts;
}

}  // namespace

std::string field_of(const std::string& lines, const std::string& name) {
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with(name + ": ")) return line.substr(name.size() + 2);
  }
  return "unknown";
}

Machine describe_machine(tutti::Communicator& world, MPI_Comm comm) {
  const std::string info = tutti::build_info();
  return {.hosts = gather_hosts(comm, world.size()),
          .ranks = world.size(),
          .nodes = world.num_nodes(),
          .library = info.substr(0, info.find('\n')),
          .mpi = field_of(info, "MPI"),
          .vector_instructions = field_of(info, "vector instructions"),
          .processor = processor_name(),
          .cache_bytes = last_level_cache(),
          .algorithms = world.algorithms(),
          .started = time_now()};
}

std::string hosts_text(const std::vector<Host>& hosts) {
  std::string text;
  for (const Host& host : hosts) {
    text += (text.empty() ? "" : ", ") + host.name + " (" + std::to_string(host.ranks) + ")";
  }
  return text;
}

std::string place_text(const Machine& machine) {
  constexpr std::size_t kNamedHosts = 3;
  const std::size_t named = std::min(machine.hosts.size(), kNamedHosts);
  std::string hosts = hosts_text(
      {machine.hosts.begin(), machine.hosts.begin() + static_cast<std::ptrdiff_t>(named)});
  if (named < machine.hosts.size()) {
    hosts += " and " + std::to_string(machine.hosts.size() - named) + " more hosts";
  }
  return std::to_string(machine.ranks) + (machine.ranks == 1 ? " rank on " : " ranks on ") +
         std::to_string(machine.nodes) + (machine.nodes == 1 ? " node: " : " nodes: ") + hosts;
}

void add_streaming(std::span<const float> left, std::span<const float> right,
                   std::span<float> sum) {
  std::size_t i = 0;
#if defined(__SSE__)
  for (; i + 16 <= sum.size(); i += 16) {  // one cache line at a time
    for (std::size_t part = i; part < i + 16; part += 4) {
      _mm_stream_ps(&sum[part], _mm_add_ps(_mm_load_ps(&left[part]), _mm_load_ps(&right[part])));
    }
  }
  _mm_sfence();
#endif
  for (; i < sum.size(); ++i) sum[i] = left[i] + right[i];
}

MemoryProbe plan_memory_probe(std::size_t cache_bytes, int ranks_of_node) {
  constexpr std::size_t kLeastBytes = std::size_t{48} << 20;
  constexpr std::size_t kLineBytes = 64;
  constexpr std::size_t kMostRepetitions = 7;
  const std::size_t enough = std::min(cache_bytes, kMostProbeBytes) * 4;
  const std::size_t all = std::clamp(enough, kLeastBytes, kMostProbeBytes);
  const std::size_t array = all / 3 / static_cast<std::size_t>(ranks_of_node);
  const std::size_t repetitions = kMostProbedBytes / all - 1;  // the first touch is one of them
  return {.array_bytes = std::max(array / kLineBytes, std::size_t{1}) * kLineBytes,
          .repetitions = static_cast<int>(std::min(repetitions, kMostRepetitions)),
          .exceeds_cache = all / 2 >= cache_bytes};
}

MemorySpeed measure_memory(tutti::Communicator& world, MPI_Comm comm, const MemoryProbe& probe) {
  const Stopwatch all_passes;
  const auto count = static_cast<std::int64_t>(probe.array_bytes / sizeof(float));
  std::vector<tutti::Tensor> arrays;
  world.agree([&] {
    for (int array = 0; array < 3; ++array) arrays.push_back(tutti::Tensor::ones({count}));
  });
  std::vector<double> rates;
  double elapsed = 0.0;
  while (elapsed <= kMostProbeSeconds) {  // all ranks have the same `elapsed`
    world.barrier();
    const Stopwatch pass;
    add_streaming(arrays[0].values<float>(), arrays[1].values<float>(), arrays[2].values<float>());
    rates.push_back(3.0 * static_cast<double>(probe.array_bytes) / pass.seconds() / 1e9);
    const bool is_last = static_cast<int>(rates.size()) == probe.repetitions;
    elapsed = is_last ? std::numeric_limits<double>::infinity() : all_passes.seconds();
    max_over_ranks(comm, {&elapsed, 1});
  }
  std::sort(rates.begin(), rates.end());
  const std::vector<double> all = gather(comm, percentile(rates, 50.0));
  const double total = std::accumulate(all.begin(), all.end(), 0.0);
  return {.per_rank_gbs = total / static_cast<double>(all.size()),
          .total_gbs = total,
          .array_bytes = probe.array_bytes,
          .exceeds_cache = probe.exceeds_cache};
}

}  // namespace apps::benchmark
