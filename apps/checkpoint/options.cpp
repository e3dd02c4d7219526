// SPDX-License-Identifier: Apache-2.0
#include "apps/checkpoint/options.hpp"

#include <sstream>

#include <tutti/error.hpp>
#include <tutti/settings.hpp>

#include "support/command_line.hpp"

namespace po = boost::program_options;

namespace apps::checkpoint {
namespace {

po::options_description describe(Options& options, std::string& bytes) {
  po::options_description all("Options", 100);
  all.add_options()("bytes", po::value(&bytes)->default_value("1G"),
                    "of weights (float32); with suffix as in 64M, 1GiB")(
      "keys", po::value(&options.keys)->default_value(16), "equal parts that they are kept in")(
      "repeats", po::value(&options.repeats)->default_value(5),
      "timed turns, after two that fill the directory")(
      "directory", po::value(&options.directory)->default_value("."),
      "on the disk to measure; room for four times the bytes is needed");
  add_common_options(all);
  return all;
}

std::size_t bytes_of(const std::string& text) {
  try {
    return tutti::parse_bytes(text);
  } catch (const tutti::Error& error) {
    throw_bad_option(std::string("--bytes: ") + error.what());
  }
}

}  // namespace

Options parse_options(int argc, const char* const* argv) {
  Options options;
  std::string bytes;
  const auto values = parse_command_line(argc, argv, describe(options, bytes));
  options.help = values.contains("help");
  options.version = values.contains("version");
  if (options.help || options.version) return options;
  options.bytes = bytes_of(bytes);
  if (options.keys < 1) throw_bad_option("--keys: expected at least 1");
  if (options.repeats < 1) throw_bad_option("--repeats: expected at least 1");
  if (options.bytes < sizeof(float) * static_cast<std::size_t>(options.keys)) {
    throw_bad_option("--bytes " + bytes + ": expected at least one float32 (4 bytes) for each of " +
                     std::to_string(options.keys) + " keys");
  }
  return options;
}

std::string help() {
  Options options;
  std::string bytes;
  std::ostringstream text;
  text
      << "checkpoint-benchmark: how fast a store is saved and loaded, beside the disk's own rate.\n"
         "Start it alone or with mpirun. In turn, and in a folder that is removed at the end:\n"
         "  disk  one process writes a file of that size, past the page cache if it can, and "
         "syncs\n"
         "  save  kv.save(), which keeps two checkpoints and removes older ones\n"
         "  load  kv.load() of what was just saved, whose every element is checked\n\n"
      << describe(options, bytes) << "\nEnvironment:\n"
      << tutti::Settings::help();
  return text.str();
}

}  // namespace apps::checkpoint
