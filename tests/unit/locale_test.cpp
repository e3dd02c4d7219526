// SPDX-License-Identifier: Apache-2.0
// The texts that the library reads and writes are the same under every locale of the program.
#include <clocale>
#include <cstdio>
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tutti/tutti.hpp"

#include "collectives/engine/statistics_collector.hpp"
#include "collectives/text/numbers.hpp"
#include "collectives/wait/failure.hpp"
#include "runtime/base/file.hpp"
#include "runtime/checkpoint/manifest.hpp"
#include "runtime/job/memory_limits.hpp"
#include "runtime/job/processors.hpp"
#include "runtime/job/settings.hpp"
#include "runtime/job/tuning_file.hpp"
#include "runtime/observe/prometheus.hpp"
#include "runtime/observe/statistics.hpp"
#include "runtime/observe/summary.hpp"
#include "support/locales.hpp"

using namespace tutti;
namespace fs = std::filesystem;

namespace {

struct OneHost final : collectives::RankNames {
  [[nodiscard]] std::string host_of(int) const override { return "a"; }
  [[nodiscard]] std::optional<long> process_of(int) const override { return std::nullopt; }
};

Statistics statistics() {
  Statistics one{.rank = 1234, .seconds = 12345.5, .calls = {}};
  one.calls.push_back({.call = "push",
                       .keys = {"a"},
                       .calls = 12345,
                       .bytes = 4000123,
                       .seconds = 0.000628995,
                       .waiting_seconds = 2.25,
                       .last = {{1, 9012, 2.5}, {0, 10, 0}}});
  return one;
}

std::map<std::string, std::string> variables() {
  return {{"TUTTI_TIMEOUT", "0.5"},       {"TUTTI_GRACE", "1e3"},
          {"TUTTI_ARENA_BYTES", "64mib"}, {"TUTTI_CHUNK_BYTES", "131072"},
          {"TUTTI_THREADS", "12"},        {"TUTTI_RANKS_PER_NODE", "3,5"}};
}

std::string settings_text() {
  std::vector<std::string> warnings;
  const Settings settings = Settings::from_variables(variables(), warnings);
  CHECK(settings.timeout.count() == 0.5);
  return settings_to_compare(settings) + Settings::help();
}

std::string tuning() {
  const std::string row =
      "# tutti tuning 1\n# x\nranks=2 kind=allreduce data=shared in-place=yes consumed=no apart=no "
      "bytes=65536 inputs=announced results=spread slots=cached outputs=cached margin=1.25\n";
  return tuning_text(parse_tuning(row, "x"), "x");
}

std::string failures() {
  KVStore store = KVStore::create("LOCAL_UPDATE_CPU");
  store.init("i", Tensor::full({2, 3}, 1.5F));
  std::string text(store.type());
  try {
    store.push("i", Tensor::full({1000, 3}, 2.0F));
  } catch (const Error& error) {
    text += error.what();
  }
  return text + optimizer::sgd({.learning_rate = 0.125, .momentum = 0.9})->name();
}

/// The text of a checkpoint's files, and of the result of a load.
std::string checkpoint_text() {
  const test::ScratchFolder folder;
  KVStore store = KVStore::create("local");
  store.init("w", Tensor::full({1024, 3}, 1.5F));
  store.set_optimizer(optimizer::sgd({.learning_rate = 0.125, .momentum = 0.9}));
  store.push("w", Tensor::full({1024, 3}, 2.0F));
  store.save(folder.path() / "run", {{"loss", "0.5"}});
  KVStore other = KVStore::create("local");
  other.set_optimizer(optimizer::sgd({.learning_rate = 0.125, .momentum = 0.9}));
  other.load(folder.path() / "run");
  const std::filesystem::path generation = folder.path() / "run" / "generation-1";
  std::string text;
  for (const char* name : {"weights.safetensors", "optimizer.safetensors"}) {
    text += checkpoint::read_text(generation / name, 1 << 20);
  }
  checkpoint::Manifest manifest =
      checkpoint::parse_manifest(checkpoint::read_text(generation / "manifest.json", 1 << 20));
  manifest.writer = {};  // the time, among others
  return text + checkpoint::to_text(manifest);
}

std::string in_all() {
  const std::vector<Statistics> ranks{statistics(), statistics()};
  return observe::prometheus_text(statistics(), "a") + observe::summary_table(ranks, OneHost()) +
         to_string(statistics()) +
         observe::to_json(observe::from_json(observe::to_json(ranks[0]))) + settings_text() +
         tuning() + collectives::in_seconds(std::chrono::milliseconds(1500)) + failures() +
         checkpoint_text();
}

}  // namespace

TEST_CASE("texts and files are the same under the locales of Germany and Turkey") {
  const std::string expected = in_all();
  CHECK(expected.find("0.000628995") != std::string::npos);
  const double quota = processor_quota();
  const ProcessorSet cores = cores_of(usable_hardware_threads());
  for (const char* name : {"de_DE", "tr_TR"}) {
    CAPTURE(name);
    const test::ForeignLocale locale(name);
    if (!locale.has_c()) MESSAGE("no localedef: streams alone have the locale");
    std::ostringstream stream;
    stream << 1234.5;
    REQUIRE(stream.str() == "1.234,5");
    CHECK(in_all() == expected);
    CHECK(processor_quota() == quota);
    CHECK(cores_of(usable_hardware_threads()) == cores);
    CHECK(available_memory(nullptr).bytes > (std::size_t{1} << 20));
  }
}

TEST_CASE("numbers in text are those of printf in the locale C, and are read back") {
  for (const double value : {0.0, -1.5, 0.000628995, 1e10, 123456789.25, 1e300, 2.5}) {
    char text[400];
    std::snprintf(text, sizeof text, "%.9g", value);
    CHECK(significant(value, 9) == text);
    std::snprintf(text, sizeof text, "%.2f", value);
    CHECK(fixed(value, 2) == text);
    CHECK(number_of<double>(exact(value)) == value);
  }
  for (const char* text : {"", " 1", "1 ", "1,5", "x", "1.5x"}) {
    CHECK_FALSE(number_of<double>(text));
  }
  CHECK(number_of<int>("-12") == -12);
  CHECK_FALSE(number_of<int>("12345678901"));
}
