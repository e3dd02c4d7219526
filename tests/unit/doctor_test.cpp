// SPDX-License-Identifier: Apache-2.0
// Every check of tutti-doctor on made-up machines: with one mistake each, and with none.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/doctor/checks.hpp"
#include "apps/doctor/program_file.hpp"
#include "apps/doctor/report.hpp"
#include "apps/doctor/tune.hpp"
#include "apps/doctor/tune_file.hpp"

using apps::doctor::check_program;
using apps::doctor::Finding;
using apps::doctor::Findings;
using apps::doctor::Level;
using apps::doctor::Plan;
using apps::doctor::RankInfo;

namespace {

const apps::doctor::ProgramFile kCallsMpi{
    .path = "/p", .is_elf = true, .has_loader = true, .calls_mpi = true};
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

/// The facts of two hosts of two ranks without a mistake.
std::vector<RankInfo> healthy() {
  std::vector<RankInfo> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    RankInfo info;
    info.rank = rank;
    info.host = rank < 2 ? "a" : "b";
    info.pid = 100 + rank;
    info.library = "0.1.0";
    info.mpi = "Open MPI v4.1.4";
    info.mpi_of_build = "Open MPI v4.1.2";
    info.world_size = 4;
    info.launch = {"mpirun of Open MPI", "OMPI_COMM_WORLD_SIZE=4", 4, rank, "openmpi"};
    info.thread_level = 1;
    info.processors = {rank % 2};
    info.host_processors = 2;
    info.memory = 8 * kGiB;
    info.shm_free = 4 * kGiB;
    info.open_files = 1024;
    info.interfaces = {{"eth0", "10.1.0.0/16"}};
    info.node = rank / 2;
    info.has_directory = true;
    info.directory_free = 100 * kGiB;
    ranks.push_back(info);
  }
  return ranks;
}

using Mistake = std::function<void(std::vector<RankInfo>& ranks, Plan& plan)>;

Findings complaints_after(const Mistake& mistake) {
  std::vector<RankInfo> ranks = healthy();
  Plan plan{.need = kGiB, .directory = "/checkpoints"};
  mistake(ranks, plan);
  Findings findings = check_all(ranks, plan);
  std::erase_if(findings, [](const Finding& finding) { return finding.level == Level::ok; });
  return findings;
}

/// True if the mistake gives exactly one complaint, with these words and a remedy.
bool finds(Level level, const std::string& topic, const std::vector<std::string>& words,
           const Mistake& mistake) {
  const Findings complaints = complaints_after(mistake);
  for (const Finding& finding : complaints) {
    MESSAGE(finding.topic, ": ", finding.text, " -> ", finding.remedy);
  }
  if (complaints.size() != 1) return false;
  const Finding& finding = complaints.front();
  const bool has_words = std::ranges::all_of(
      words, [&](const std::string& word) { return finding.text.find(word) != std::string::npos; });
  return finding.level == level && finding.topic == topic && has_words && !finding.remedy.empty();
}

}  // namespace

TEST_CASE("a healthy job has no complaint, and a line for every check") {
  CHECK(complaints_after([](auto&, auto&) {}).empty());
  const Findings all = check_all(healthy(), {});
  CHECK(all.size() == 14);
  CHECK_FALSE(has_error(all));
  CHECK(apps::doctor::verdict(all) == "0 errors, 0 warnings");
}

TEST_CASE("a program that is not there is an error, and one that calls MPI is none") {
  CHECK(check_program("p", kCallsMpi).text.starts_with("/p calls MPI in a shared library"));
  CHECK(check_program("p", {}).level == Level::error);
  CHECK(check_program("p", {}).text == "p: no such program, or not executable");
}

TEST_CASE("of a program that knows MPI alone it says why a preloaded library does nothing") {
  using File = apps::doctor::ProgramFile;
  struct Row {
    bool File::*other;  ///< what is different
    Level level;
    const char* text;
  };
  const std::array rows = {
      Row{&File::is_elf, Level::ok, "/p is a script"},
      Row{&File::has_loader, Level::warning, "/p is linked statically"},
      Row{&File::takes_rights, Level::warning, "/p runs with the rights of its owner"},
      Row{&File::contains_mpi, Level::warning, "/p contains its MPI (libmpi.a)"},
      Row{&File::calls_mpi, Level::ok, "/p itself calls no function of MPI"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.text);
    File file = kCallsMpi;
    file.*row.other = !(file.*row.other);
    const Finding finding = check_program("p", file);
    CHECK(finding.level == row.level);
    CHECK(finding.text.starts_with(row.text));
    CHECK(finding.remedy.empty() == (row.level == Level::ok));
  }
}

TEST_CASE("what is read of a program follows from its file alone") {
  const auto own = apps::doctor::read_program("/proc/self/exe");
  CHECK(own.is_elf);
  CHECK(own.has_loader);
  CHECK(apps::doctor::read_program("sh").path.ends_with("/sh"));
  CHECK(apps::doctor::read_program("no such program").path.empty());
  // Cut off within its tables, and with numbers that lead out of the file.
  char name[] = "/tmp/doctor_test.XXXXXX";
  const int file = mkstemp(name);
  REQUIRE(file >= 0);
  std::ifstream from("/proc/self/exe", std::ios::binary);
  std::string bytes(64, '\0');
  from.read(bytes.data(), 64);
  CHECK(fchmod(file, 0700) == 0);
  CHECK(write(file, bytes.data(), bytes.size()) == 64);
  close(file);
  const auto cut = apps::doctor::read_program(name);
  CHECK(cut.is_elf);
  CHECK_FALSE(cut.has_loader);
  std::filesystem::remove(name);
}

TEST_CASE("different libraries are found") {
  CHECK(finds(Level::error, "software",
              {"rank 0 (host a) has Tutti 0.1.0", "rank 3 (host b)", "0.2.0"},
              [](auto& ranks, auto&) { ranks[3].library = "0.2.0"; }));
  CHECK(finds(Level::error, "software", {"MPI: ", "rank 2 (host b) has Open MPI v5.0.1"},
              [](auto& ranks, auto&) { ranks[2].mpi = "Open MPI v5.0.1"; }));
  CHECK(finds(Level::error, "software", {"rank 1 (host a)", "thread level single"},
              [](auto& ranks, auto&) { ranks[1].thread_level = 0; }));
}

TEST_CASE("the line of the launcher names it and the MPI of the build") {
  const auto line_of = [](const std::vector<RankInfo>& ranks) {
    Findings findings;
    apps::doctor::check_launch(ranks, findings);
    REQUIRE(findings.size() == 1);
    return findings.front();
  };
  std::vector<RankInfo> ranks = healthy();
  CHECK(line_of(ranks).text ==
        "built with Open MPI v4.1.2, started by mpirun of Open MPI (OMPI_COMM_WORLD_SIZE=4)");
  ranks.front().launch = {};
  CHECK(line_of(ranks).text == "built with Open MPI v4.1.2, started by no launcher");
}

TEST_CASE("ranks that another MPI's launcher has started, each alone, are found") {
  const Mistake alone = [](auto& ranks, auto&) {
    ranks.resize(1);
    ranks[0].world_size = 1;
    ranks[0].launch = {"mpiexec of MPICH", "PMI_SIZE=2, PMI_RANK=0", 2, 0, "mpich"};
  };
  CHECK(finds(Level::error, "launcher",
              {"mpiexec of MPICH has started 2 processes (PMI_SIZE=2, PMI_RANK=0)",
               "to the MPI of this program, Open MPI v4.1.4, each of them is a job of one rank"},
              alone));
  const Findings findings = complaints_after(alone);
  REQUIRE(findings.size() == 1);
  CHECK(findings.front().remedy.starts_with("start it with the launcher of Open MPI v4.1.4"));
  CHECK(complaints_after([&](auto& ranks, auto& plan) {
          alone(ranks, plan);
          ranks[0].settings["TUTTI_LAUNCHER"] = "ignore";
        }).empty());
}

TEST_CASE("settings that differ, are misspelt or unreadable are found") {
  CHECK(finds(Level::error, "settings",
              {"rank 0 (host a) has nothing", "rank 2 (host b) has TUTTI_TIMEOUT=5"},
              [](auto& ranks, auto&) { ranks[2].settings["TUTTI_TIMEOUT"] = "5"; }));
  CHECK(finds(Level::warning, "settings", {"TUTTI_TIMOUT", "did you mean TUTTI_TIMEOUT?"},
              [](auto& ranks, auto&) {
                for (RankInfo& info : ranks) info.settings["TUTTI_TIMOUT"] = "5";
              }));
  CHECK(finds(Level::error, "settings", {"rank 0 (host a): TUTTI_TIMEOUT=never"},
              [](auto& ranks, auto&) {
                for (RankInfo& info : ranks) info.settings["TUTTI_TIMEOUT"] = "never";
              }));
}

TEST_CASE("bindings that overlap and too few processors are found") {
  CHECK(finds(Level::error, "binding", {"b: ranks 2 and 3 are bound to the same processor, of 8"},
              [](auto& ranks, auto&) {
                for (RankInfo& info : ranks) info.host_processors = 8;
                ranks[2].processors = {0, 1};
                ranks[3].processors = {1, 2};
              }));
  CHECK(finds(Level::warning, "processors", {"a: 2 ranks take turns on 1 usable processors"},
              [](auto& ranks, auto&) {
                for (RankInfo& info : ranks) info.processors = {0, 1};
                ranks[0].quota = 1.5;
              }));
  CHECK(finds(Level::warning, "processors",
              {"a: 2 ranks of 2 threads each (TUTTI_THREADS) take turns on 2 usable processors"},
              [](auto& ranks, auto&) {
                for (RankInfo& info : ranks) info.settings["TUTTI_THREADS"] = "2";
                ranks[2].processors = {0, 1, 2, 3};
                ranks[3].processors = {0, 1, 2, 3};
              }));
  CHECK(complaints_after([](auto& ranks, auto&) {
          for (RankInfo& info : ranks) info.settings["TUTTI_THREADS"] = "1";
        }).empty());
  CHECK(finds(Level::warning, "load", {"b: other programs use about 2 of 2 processors"},
              [](auto& ranks, auto&) { ranks[2].load = 2.1; }));
}

TEST_CASE("ranks that may all use the same sufficient processors overlap without harm") {
  CHECK(complaints_after([](auto& ranks, auto&) {
          for (RankInfo& info : ranks) info.host_processors = 64;
          for (RankInfo& info : ranks) info.processors = {4, 5};
        }).empty());
}

TEST_CASE("too little memory is found, where it is") {
  CHECK(finds(Level::error, "memory", {"a: 2 ranks need 10 GiB together; it has available 8 GiB"},
              [](auto& ranks, Plan& plan) {
                plan.need = 5 * kGiB - (std::uint64_t{16} << 20);
                ranks[2].memory = ranks[3].memory = 100 * kGiB;
              }));
  CHECK(finds(Level::error, "memory", {"b: 2 ranks need 2 GiB together; its cgroup leaves 1 GiB"},
              [](auto& ranks, auto&) { ranks[2].cgroup_memory = kGiB; }));
  CHECK(finds(Level::error, "shared memory",
              {"a: the ranks need 2 GiB in /dev/shm", "64 MiB are free"}, [](auto& ranks, auto&) {
                for (RankInfo& info : ranks) info.settings["TUTTI_SHARED_MEMORY"] = "shm";
                ranks[0].shm_free = std::uint64_t{64} << 20;
              }));
  CHECK(finds(Level::error, "shared memory", {"b: ranks 2 and 3 are on one host and cannot map"},
              [](auto& ranks, auto&) { ranks[3].node = 2; }));
}

TEST_CASE("ranks that the kernel keeps from reading each other are found") {
  CHECK(finds(Level::warning, "reading",
              {"b: rank 3 cannot read the memory of rank 2", "kernel.yama.ptrace_scope"},
              [](auto& ranks, auto&) {
                ranks[2].why_unreadable = "rank 3 cannot read the memory of others of its node";
                ranks[3].why_unreadable =
                    "cannot read the memory of rank 2 (host b): process_vm_readv: Operation not "
                    "permitted; Yama restricts tracing: set kernel.yama.ptrace_scope to 0";
              }));
}

TEST_CASE("a new tuning file keeps the rows of other numbers of ranks") {
  const std::string first = "# tutti tuning 1\n";
  const std::string old = first + "# old\nranks=2 margin=1\nranks=22 margin=3\nranks=4 margin=2\n";
  CHECK(apps::doctor::merged(old, first + "# learnt\nranks=2 margin=1.5\n", 2, "a machine") ==
        first + "# a machine\nranks=22 margin=3\nranks=4 margin=2\nranks=2 margin=1.5\n");
  CHECK(apps::doctor::merged("", first + "# x\nranks=2 a=1\n", 2, "a") ==
        first + "# a\nranks=2 a=1\n");
  CHECK(apps::doctor::value_in("ranks=2 margin=1.5", "margin") == "1.5");
  CHECK(apps::doctor::value_in("ranks=2 margin=1.5", "rank").empty());
}

TEST_CASE("the end of --tuning names what is faster, what was left out, and the use of the file") {
  const apps::doctor::Tuning result{.tuned = {{"push", 2048, 1.5}, {"push", 8192, 1.01}},
                                    .left_out = {"32 MiB"},
                                    .seconds = 7.5,
                                    .text = ""};
  CHECK(apps::doctor::to_lines(result, "a.file", 2) ==
        "tuned    2 kinds and sizes of calls of 2 ranks in 7.5 s\n"
        "         no time for 32 MiB\n"
        "         times the speed of the static choice:\n"
        "           push: 2 KiB 1.50\n"
        "         to use it, start jobs of 2 ranks with TUTTI_TUNING=a.file\n");
}

TEST_CASE("limits of the process are found") {
  CHECK(finds(Level::warning, "limits", {"a: ulimit -v allows 4 GiB of addresses"},
              [](auto& ranks, auto&) { ranks[0].address_space = 4 * kGiB; }));
  CHECK(finds(Level::error, "limits",
              {"b: ulimit -n allows 60 open files", "2 ranks need about 72"},
              [](auto& ranks, auto&) { ranks[2].open_files = 60; }));
  CHECK(finds(Level::warning, "limits", {"a: ulimit -f allows 1 GiB for a file", "checkpoints"},
              [](auto& ranks, auto&) { ranks[0].file_bytes = kGiB; }));
  CHECK(finds(Level::warning, "limits", {"a: ulimit -d allows 1 GiB of data"},
              [](auto& ranks, auto&) { ranks[0].data_bytes = kGiB; }));
  CHECK(finds(Level::warning, "limits",
              {"b: ulimit -u allows 64 processes and threads", "2 ranks may need about 96"},
              [](auto& ranks, auto&) { ranks[2].processes = 64; }));
  CHECK(finds(Level::warning, "limits", {"a: ulimit -s allows 256 KiB for the stack"},
              [](auto& ranks, auto&) { ranks[0].stack_bytes = 256 << 10; }));
}

TEST_CASE("hosts whose kernel gives shared memory small pages are told, without a warning") {
  std::vector<RankInfo> ranks = healthy();
  const auto text = [&] {
    Findings findings;
    check_pages(ranks, findings);
    REQUIRE(findings.size() == 1);
    CHECK(findings.front().level == Level::ok);
    return findings.front().text;
  };
  CHECK(text().starts_with("the kernel does not say"));
  for (RankInfo& info : ranks) info.huge_pages = "advise";
  CHECK(text() == "the kernel may give node-shared memory huge pages");
  ranks[2].huge_pages = "never";
  CHECK(text() ==
        "b: small ones for node-shared memory; large calls can be faster after "
        "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled");
  ranks[0].huge_pages = "deny";
  CHECK(text().starts_with("a and b: small ones"));
}

TEST_CASE("segments of ended jobs are found") {
  CHECK(finds(Level::warning, "segments",
              {"b: processes that have ended left /dev/shm/tutti-1-2, which take 1 GiB"},
              [](auto& ranks, auto&) {
                ranks[2].stale_segments = {"/dev/shm/tutti-1-2"};
                ranks[2].stale_bytes = kGiB;
              }));
}

TEST_CASE("hosts that got no ranks or uneven ones are found") {
  CHECK(finds(Level::error, "hosts", {"gave 3 hosts, the job runs on 2"},
              [](auto& ranks, auto&) { ranks[0].allocated_hosts = 3; }));
  CHECK(finds(Level::warning, "hosts", {"a runs 2 ranks, b 1"},
              [](auto& ranks, auto&) { ranks.pop_back(); }));
}

TEST_CASE("networks that do not agree are found") {
  CHECK(finds(Level::error, "network", {"no network has addresses on all hosts", "192.168.0.0/24"},
              [](auto& ranks, auto&) {
                ranks[2].interfaces = {{"eth0", "192.168.0.0/24"}};
              }));
  CHECK(finds(Level::error, "network", {"b: MPI is told to use ib0, which this host has not"},
              [](auto& ranks, auto&) {
                for (RankInfo& info : ranks) info.tcp_include = "ib0";
                ranks[0].interfaces.push_back({"ib0", "10.2.0.0/16"});
              }));
  CHECK(finds(Level::warning, "network", {"a has several networks", "172.17.0.0/16"},
              [](auto& ranks, auto&) {
                ranks[0].interfaces.push_back({"docker0", "172.17.0.0/16"});
              }));
  CHECK(complaints_after([](auto& ranks, auto&) {
          for (RankInfo& info : ranks) info.tcp_include = "10.1.0.0/16";
          ranks[0].interfaces.push_back({"docker0", "172.17.0.0/16"});
        }).empty());
}

TEST_CASE("a clock that is wrong is found, in its direction") {
  CHECK(finds(Level::warning, "clocks", {"b: its clock is 3.5 s ahead of a's"},
              [](auto& ranks, auto&) { ranks[2].clock_offset_s = 3.5; }));
  CHECK(finds(Level::warning, "clocks", {"b: its clock is 60 s behind a's"},
              [](auto& ranks, auto&) { ranks[3].clock_offset_s = -60; }));
}

TEST_CASE("a GPU that two ranks share is found") {
  const auto with_gpus = [](std::vector<RankInfo>& ranks) {
    for (RankInfo& info : ranks) {
      info.gpus = 2;
      info.usable_gpus = 1;
      info.gpu_text = "CUDA 13.0: gpu(0)";
      info.restricts_gpus = true;
      info.my_gpus = {std::to_string(info.rank % 2)};
    }
  };
  CHECK(complaints_after([&](auto& ranks, auto&) { with_gpus(ranks); }).empty());
  CHECK(finds(Level::error, "GPUs", {"b: ranks 2 and 3 share GPU 0"}, [&](auto& ranks, auto&) {
    with_gpus(ranks);
    ranks[3].my_gpus = {"0"};
  }));
  CHECK(finds(Level::warning, "GPUs", {"different numbers of GPUs"},
              [](auto& ranks, auto&) { ranks[0].gpus = ranks[1].gpus = 4; }));
}

TEST_CASE("what the library can use of a host's GPUs is said as the library says it") {
  const auto finding = [](int gpus, int usable, const std::string& text) {
    std::vector<RankInfo> ranks = healthy();
    for (RankInfo& info : ranks) {
      info.gpus = gpus;
      info.usable_gpus = usable;
      info.gpu_text = text;
    }
    Findings findings;
    apps::doctor::check_gpus(ranks, findings);
    REQUIRE(findings.size() == 1);
    return findings[0];
  };
  CHECK(finding(0, 0, "none: there is no GPU here").level == Level::ok);
  CHECK(finding(0, 0, "none: there is no GPU here").text ==
        "the library can use none: there is no GPU here");
  CHECK(finding(2, 1, "CUDA 13.0: gpu(0)").level == Level::ok);
  CHECK(finding(2, 1, "CUDA 13.0: gpu(0)").text ==
        "2 per host; the library can use CUDA 13.0: gpu(0)");
  CHECK(finding(2, 0, "none: no CUDA").level == Level::warning);
  CHECK(finding(2, 0, "none: no CUDA").text == "a: 2 per host; the library can use none: no CUDA");
}

TEST_CASE("a directory for checkpoints that will not do is found") {
  CHECK(finds(Level::error, "checkpoints", {"a: no file can be written in /checkpoints: Read-only"},
              [](auto& ranks, auto&) {
                ranks[0].has_directory = false;
                ranks[0].directory_error = "Read-only file system";
              }));
  CHECK(finds(Level::error, "checkpoints", {"three generations take 3 GiB, 2 GiB are free"},
              [](auto& ranks, auto&) { ranks[0].directory_free = 2 * kGiB; }));
  CHECK(complaints_after([](auto& ranks, auto&) { ranks[3].has_directory = false; }).empty());
}

TEST_CASE("facts survive the way to rank 0, and the report names level and remedy") {
  std::vector<RankInfo> ranks = healthy();
  ranks[1].settings["TUTTI_TIMEOUT"] = "5";
  CHECK(to_text(apps::doctor::from_text(to_text(ranks[1]))) == to_text(ranks[1]));
  const Findings findings = {{Level::ok, "clocks", "fine", ""},
                             {Level::error, "memory", "no", "buy"}};
  CHECK(to_lines(findings, false) ==
        "ok       clocks         fine\n"
        "error    memory         no\n"
        "                        -> buy\n");
  CHECK(to_lines(findings, true).find("\x1b[31merror") != std::string::npos);
  const std::string json = to_json(findings, ranks);
  for (const char* word : {"\"errors\": 1", "\"remedy\": \"buy\"", "\"host\": \"b\""}) {
    CHECK(json.find(word) != std::string::npos);
  }
}
