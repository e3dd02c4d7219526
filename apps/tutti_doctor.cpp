// SPDX-License-Identifier: Apache-2.0
// Finds problems that would make a job fail, or slow, before it starts.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <optional>

#include <tutti/mpi_abi.hpp>
#include <tutti/tutti.hpp>

#include "apps/doctor/gather.hpp"
#include "apps/doctor/options.hpp"
#include "apps/doctor/program_file.hpp"
#include "apps/doctor/report.hpp"
#include "apps/doctor/self_test.hpp"
#include "apps/doctor/tune.hpp"
#include "apps/doctor/tune_file.hpp"
#include "support/output_file.hpp"
#include "support/progress.hpp"

namespace {

namespace doctor = apps::doctor;

constexpr int kHealthy = 0;
constexpr int kErrorFound = 2;
constexpr std::chrono::duration<double> kLongestWait{60};

/// Reads the command line, which is the same on all ranks, so that all fail alike.
doctor::Options parse_on_all(int argc, char** argv, bool reporter) {
  try {
    return doctor::parse_options(argc, argv);
  } catch (const tutti::Error& error) {
    throw tutti::Error(error.code(), error.what(), tutti::ErrorScope::agreed, reporter);
  }
}

/// The library's own view of the job, or the reason why there is none, which is a finding like
/// others.
struct World {
  std::optional<tutti::Communicator> communicator;
  std::string error;
};

/// The settings of the job, with a deadline even where the job has none.
tutti::Settings settings_of_job() {
  tutti::Settings settings = tutti::Settings::from_environment();
  const bool is_never = settings.timeout.count() == 0;
  if (is_never || settings.timeout > kLongestWait) settings.timeout = kLongestWait;
  return settings;
}

World open_world(bool may_start) {
  World world;
  if (!may_start) return {{}, "not run: launcher or settings are such that the library refuses"};
  try {
    world.communicator = tutti::Communicator::world(settings_of_job());
  } catch (const tutti::Error& error) {
    world.error = error.what();
  }
  return world;
}

doctor::Finding test(World& world, double seconds) {
  const std::string topic = "self-test";
  const std::string remedy = "do what the text says; then start tutti-doctor again";
  if (!world.communicator) return {doctor::Level::error, topic, world.error, remedy};
  try {
    const doctor::SelfTest result = doctor::run_self_test(*world.communicator, seconds);
    if (result.wrong == 0) return {doctor::Level::ok, topic, doctor::to_string(result), ""};
    return {doctor::Level::error, topic, doctor::to_string(result),
            "test this machine's memory and network: the same sums were right elsewhere"};
  } catch (const tutti::Error& error) {
    return {doctor::Level::error, topic, error.what(), remedy};
  }
}

// --- --tuning FILE -----------------------------------------------------------------------------

/// The state before anything is measured: a communicator that learns at once, and the rows that the
/// file has already.
struct Workbench {
  tutti::Communicator world;
  std::string old;  ///< text of the file, on rank 0
};

void require_tunable(const tutti::Communicator& world, const tutti::Settings& settings) {
  const auto refuse = [](const std::string& text) {
    throw tutti::Error(tutti::ErrorCode::invalid_argument, "--tuning: " + text);
  };
  if (world.size() == 1) {
    refuse("one rank has nothing to choose; start tutti-doctor with mpirun, as the job will be");
  }
  if (world.num_nodes() > 1) {
    refuse("the ranks are on " + std::to_string(world.num_nodes()) +
           " nodes; what is tuned are jobs on one: start as many ranks on one host");
  }
  if (!settings.algorithms.empty()) {
    refuse("TUTTI_ALGORITHMS=" + settings.algorithms + " chooses already; unset it");
  }
}

/// Prepares for measurements. The library reads an existing file first, and refuses one that is not
/// a tuning file.
Workbench prepare(const tutti::MpiMessages& job, const std::filesystem::path& file) {
  tutti::Settings settings = settings_of_job();
  settings.tuning = "at-once";
  Workbench bench{tutti::Communicator::world(settings), {}};
  require_tunable(bench.world, settings);
  bench.world.agree([&] {
    if (bench.world.rank() != 0) return;
    bench.old = doctor::read_if_there(file);
    apps::check_output_file(file);
  });
  if (doctor::share(job, bench.old.empty() ? 0 : 1) == 0) return bench;
  settings.tuning = std::filesystem::absolute(file);
  tutti::Communicator::world(settings);
  return bench;
}

void tune(const tutti::MpiMessages& job, const doctor::Options& options, Workbench bench,
          const std::vector<doctor::RankInfo>& ranks) {
  const bool is_root = bench.world.rank() == 0;
  const doctor::Tuning result =
      doctor::tune(bench.world, {.seconds = options.tune_seconds,
                                 .share = [&](int value) { return doctor::share(job, value); },
                                 .is_root = is_root,
                                 .is_watched = apps::stdout_is_watched()});
  bench.world.agree([&] {
    if (!is_root) return;
    const std::string machine = doctor::machine_text(ranks.front().host, ranks.front().mpi);
    apps::write_file(options.tune,
                     doctor::merged(bench.old, result.text, bench.world.size(), machine));
  });
  if (is_root) std::cout << doctor::to_lines(result, options.tune, bench.world.size());
}

/// Reports that the MPI that this process needs cannot be used: each rank is alone, and rank 0
/// speaks for all.
int report_no_mpi(const tutti::Error& error) {
  if (!error.reporter()) return kErrorFound;
  const std::string text = error.what();
  const auto remedy = text.find("; ");
  const doctor::Findings findings = {
      {doctor::Level::error, "launcher", text.substr(0, remedy),
       remedy == std::string::npos ? "" : text.substr(remedy + 2)},
      {doctor::Level::error, "self-test", "not run: no MPI joins the ranks", ""}};
  std::cout << doctor::to_lines(findings, apps::stdout_is_watched()) << doctor::verdict(findings)
            << std::endl;
  return kErrorFound;
}

int tutti_doctor(int argc, char** argv) {
  std::optional<tutti::MpiMessages> messages;
  try {
    messages.emplace(kLongestWait);
  } catch (const tutti::Error& error) {
    return report_no_mpi(error);
  }
  const tutti::MpiMessages& job = *messages;
  const bool is_root = job.rank() == 0;
  const doctor::Options options = parse_on_all(argc, argv, is_root);
  if (options.help || options.version) {
    if (is_root) std::cout << (options.help ? doctor::help() : tutti::build_info());
    return kHealthy;
  }
  if (is_root) apps::check_output_file(options.json);
  doctor::RankInfo mine = doctor::collect_rank_info(options.plan.directory);
  mine.library = tutti::version();
  std::vector<doctor::RankInfo> ranks = doctor::gather(job, std::move(mine));
  // Each process is rank 0 of a job of its own: the one that the launcher calls rank 0 speaks for
  // all.
  if (is_root && !doctor::launch_error(ranks.front()).empty() && ranks.front().launch.rank > 0) {
    return kErrorFound;
  }
  doctor::Findings findings;
  if (is_root) doctor::check_launch(ranks, findings);
  if (is_root) doctor::check_settings(ranks, findings);
  World world = open_world(doctor::share(job, doctor::has_error(findings) ? 0 : 1) != 0);
  const auto& own = world.communicator;
  doctor::gather_nodes(job, own ? own->node() : -1, own ? own->why_unreadable() : "", ranks);
  std::optional<Workbench> bench;
  if (own && !options.tune.empty()) bench.emplace(prepare(job, options.tune));

  const bool colour = apps::stdout_is_watched();
  if (is_root) {
    findings = doctor::check_all(ranks, options.plan);
    if (const auto& program = options.mpi_program; !program.empty()) {
      findings.push_back(doctor::check_program(program, doctor::read_program(program)));
    }
    std::cout << doctor::to_lines(findings, colour) << std::flush;
  }
  if (options.seconds > 0 || !world.communicator) {
    findings.push_back(test(world, options.seconds));
    if (is_root) std::cout << doctor::to_lines({findings.back()}, colour);
  }
  if (is_root) {
    std::cout << doctor::verdict(findings) << std::endl;
    apps::write_file(options.json, doctor::to_json(findings, ranks));
  }
  const int code =
      doctor::share(job, is_root && doctor::has_error(findings) ? kErrorFound : kHealthy);
  if (bench && code == kHealthy) tune(job, options, std::move(*bench), ranks);
  if (is_root && !options.tune.empty() && code != kHealthy) {
    std::cout << "not tuned, because of what was found\n";
  }
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::run_program("tutti-doctor", [&] { return tutti_doctor(argc, argv); });
}
