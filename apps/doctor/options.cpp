// SPDX-License-Identifier: Apache-2.0
#include "apps/doctor/options.hpp"

#include <sstream>

#include <tutti/settings.hpp>

#include "support/command_line.hpp"

namespace po = boost::program_options;

namespace apps::doctor {
namespace {

constexpr double kMostSeconds = 3600;

/// Refuses names that TUTTI_TUNING would not take for a file.
void require_file_name(const std::filesystem::path& file) {
  for (const char* value : {"learn", "at-once", "static"}) {
    if (file != value) continue;
    throw_usage_error("--tuning " + file.string() + ": expected the name of a file; TUTTI_TUNING=" +
                      value + " means something else (./" + value + " would do)");
  }
}

po::options_description describe(Options& options, std::string& need) {
  po::options_description all("Options", 100);
  add_rows(
      all,
      {
          {"need", po::value(&need)->default_value("0"),
           "memory that one rank will hold: values and optimizer states, such as 4G"},
          {"checkpoint-dir", po::value(&options.plan.directory), "where the job will save"},
          {"mpi-program", po::value(&options.mpi_program),
           "a program that knows MPI alone: whether a preloaded library takes part in it"},
          {"tuning", po::value(&options.tune),
           "measure which way through this host is fastest, and write this file for TUTTI_TUNING"},
          {"tuning-seconds", po::value(&options.tune_seconds)->default_value(20),
           "what that may take; sizes that do not fit are left out"},
          {"seconds", po::value(&options.seconds)->default_value(2),
           "of the self-test; 0 leaves it out"},
          {"json", po::value(&options.json), "write findings and facts to this file"},
      });
  add_common_options(all);
  return all;
}

}  // namespace

Options parse_options(int argc, const char* const* argv) {
  Options options;
  std::string need;
  const auto variables = parse_command_line(argc, argv, describe(options, need));
  options.help = variables.contains("help");
  options.version = variables.contains("version");
  options.plan.need = tutti::parse_bytes(need);
  if (!(options.seconds >= 0 && options.seconds <= kMostSeconds)) {
    throw_usage_error("--seconds " + std::to_string(options.seconds) + ": expected 0 to 3600");
  }
  if (!(options.tune_seconds > 0 && options.tune_seconds <= kMostSeconds)) {
    throw_usage_error("--tuning-seconds " + std::to_string(options.tune_seconds) +
                      ": expected above 0, up to 3600");
  }
  if (variables.contains("tuning") && options.tune.empty()) {
    throw_usage_error("--tuning: expected the name of a file");
  }
  require_file_name(options.tune);
  return options;
}

std::string help() {
  Options options;
  std::string need;
  std::ostringstream text;
  text << "tutti-doctor [OPTIONS], alone or under mpirun as the job will be started\n\n"
          "Looks at what jobs fail on or are slow by: libraries, settings, bindings, memory,\n"
          "limits, networks, clocks, disks; then runs collectives whose results are known.\n"
          "With --tuning FILE it then measures which way through the host is fastest for which\n"
          "calls, and writes a file for TUTTI_TUNING.\n"
          "Exit code: 0 no error found, 2 an error was found, 1 usage.\n\n"
       << describe(options, need) << '\n'
       << tutti::Settings::help();
  return text.str();
}

}  // namespace apps::doctor
