// SPDX-License-Identifier: Apache-2.0
// Measures the numbers of a network for collective-simulator, and writes them as its file.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include <tutti/mpi.hpp>
#include <tutti/tutti.hpp>

#include "apps/benchmark/machine.hpp"
#include "support/command_line.hpp"
#include "support/core_speed.hpp"
#include "support/link_speed.hpp"
#include "support/output_file.hpp"

namespace {

namespace po = boost::program_options;

using Json = nlohmann::ordered_json;

constexpr int kDone = 0;
constexpr double kMicro = 1e6;

struct Options {
  std::string name;
  std::string output;
  std::string base;
  int shared_cores = 0;
};

po::options_description describe(Options& options) {
  po::options_description all("Options", 100);
  apps::add_rows(all, {
                          {"name", po::value(&options.name)->default_value("measured"),
                           "what the network is called"},
                          {"output", po::value(&options.output), "the file; else it is printed"},
                          {"base", po::value(&options.base),
                           "a file of an earlier run between two hosts alone: turn_us is measured "
                           "among more of them, "
                           "and the rest is taken from there"},
                          {"shared-cores", po::value(&options.shared_cores)->default_value(0),
                           "if all hosts are on one machine, as those of hosts.sh are: its cores"},
                      });
  apps::add_common_options(all);
  return all;
}

Json read_base(const std::string& path) {
  std::ifstream file(path);
  Json network = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (network.is_object() && network.contains("measured")) return network;
  apps::throw_usage_error("--base: " + path + " is no file of network-probe");
}

void check(const Options& options, const tutti::Communicator& world) {
  if (!options.base.empty()) read_base(options.base);
  if (options.shared_cores < 0) apps::throw_usage_error("--shared-cores: expected 0 or more");
  apps::check_output_file(world.rank() == 0 ? options.output : "");
  if (world.size() >= 2 && world.num_nodes() == world.size()) return;
  throw tutti::Error(tutti::ErrorCode::invalid_argument,
                     "network-probe: got " + std::to_string(world.size()) + " ranks on " +
                         std::to_string(world.num_nodes()) +
                         " hosts; expected: a rank on each of two hosts or more");
}

/// A rank's part of the round in which ranks that share the first rank's core take turns. Hosts
/// have cores in turn.
double turn_of(double round, int ranks, int cores) {
  if (cores <= 0 || ranks <= cores) return 0;
  const int on_core = (ranks + cores - 1) / cores;
  return round / on_core;
}

Json network_of(const Options& options, const apps::LinkSpeed& link, const apps::CoreSpeed& cores,
                const apps::benchmark::Machine& machine) {
  constexpr double kNano = 1e9;
  constexpr double kMegabit = 1e6 / 8;
  constexpr double kGigabyte = 1e9;
  return {{"name", options.name},
          {"measured",
           {{"processor", machine.processor},
            {"hosts", machine.ranks},
            {"started", machine.started},
            {"mpi", machine.mpi},
            {"library", machine.library}}},
          {"latency_us", link.latency * kMicro},
          {"overhead_us", link.overhead * kMicro},
          {"receive_us", link.receive_overhead * kMicro},
          {"poll_us", link.poll * kMicro},
          {"gap_us", 0},
          {"port_mbit_s", link.port_rate / kMegabit},
          {"burst_bytes", link.burst_bytes},
          {"header_bytes", link.header_bytes},
          {"eager_bytes", link.eager_bytes},
          {"incoming_limited", true},
          {"call_ns", cores.call * kNano},
          {"signal_ns", cores.signal * kNano},
          {"core_gb_s", cores.core_rate / kGigabyte},
          {"memory_gb_s", cores.memory_rate / kGigabyte},
          {"cache_bytes", machine.cache_bytes},
          {"node_gb_s", cores.node_rate / kGigabyte},
          {"cores", options.shared_cores},
          {"turn_us", turn_of(link.round, machine.ranks, options.shared_cores) * kMicro}};
}

int network_probe(int argc, char** argv) {
  tutti::Communicator world = tutti::Communicator::world();
  Options options;
  std::string shown;
  world.agree([&] {
    const auto values = apps::parse_command_line(argc, argv, describe(options));
    if (values.contains("help")) {
      std::ostringstream text;
      text << "network-probe: measures what messages between two hosts cost, and the cores of the\n"
              "first. Start it with mpirun, a rank on each host; with more than two hosts it also\n"
              "measures what ranks cost each other that share the machine's cores.\n\n"
           << describe(options);
      shown = text.str();
    }
    if (values.contains("version")) shown = tutti::build_info();
    if (shown.empty()) check(options, world);
  });
  if (!shown.empty()) {
    if (world.rank() == 0) std::cout << shown << std::flush;
    return kDone;
  }
  const MPI_Comm comm = tutti::duplicate_world();
  const apps::benchmark::Machine machine = apps::benchmark::describe_machine(world, comm);
  const bool has_base = !options.base.empty();
  apps::CoreSpeed cores;
  if (world.rank() == 0 && !has_base) cores = apps::measure_cores();  // while the others sleep
  const apps::LinkSpeed link = apps::measure_link(comm);
  if (world.rank() != 0) return kDone;
  Json network = has_base ? read_base(options.base) : network_of(options, link, cores, machine);
  if (has_base) {
    network["measured"]["hosts"] = machine.ranks;
    network["cores"] = options.shared_cores;
    network["turn_us"] = turn_of(link.round, machine.ranks, options.shared_cores) * kMicro;
  }
  const std::string text = network.dump(2) + "\n";
  if (options.output.empty()) std::cout << text << std::flush;
  apps::write_file(options.output, text);
  return kDone;
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::run_program("network-probe", [&] { return network_probe(argc, argv); });
}
