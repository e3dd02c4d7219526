// SPDX-License-Identifier: Apache-2.0
// The threads of a rank: who makes them, what they do, and what they do not touch.
#include "collectives/job/workers.hpp"

#include <atomic>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <pthread.h>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "tutti/kvstore.hpp"

#include "runtime/job/processors.hpp"
#include "tests/support/child.hpp"
#include "tests/support/emulated.hpp"
#include "tests/support/scratch_folder.hpp"

using tutti::KVStore;
using tutti::Settings;
using tutti::Tensor;
using tutti::collectives::kSplitBytes;
using tutti::collectives::ProcessorMask;
using tutti::collectives::Workers;

namespace {

constexpr std::int64_t kLarge = kSplitBytes / sizeof(float);

std::size_t num_threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

/// The number of threads whose names begin like this.
std::size_t num_named(const std::string& begin) {
  std::size_t named = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "comm");
    std::string found;
    if (std::getline(file, found) && found.starts_with(begin)) ++named;
  }
  return named;
}

/// Waits until `is_so` is true, for at most 10 s.
bool becomes(const std::function<bool()>& is_so) {
  for (int look = 0; look < 10'000; ++look) {
    if (is_so()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

/// Waits for the number of threads: the kernel counts a thread that was joined for a moment longer.
bool becomes_num_threads(std::size_t expected) {
  return becomes([&] { return num_threads() == expected; });
}

/// The number of threads once helpers of the test before have ended.
std::size_t num_threads_without_helpers() {
  CHECK(becomes([] { return num_named("tutti-") == 0; }));
  return num_threads();
}

Settings with_threads(int threads) {
  Settings settings;
  settings.threads = threads;
  return settings;
}

/// Runs pieces, each of which counts itself.
std::vector<int> counted(Workers& workers, std::size_t pieces) {
  std::vector<int> counts(pieces);
  workers.run(pieces, [&](std::size_t piece) { ++counts[piece]; });
  return counts;
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto in_seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return in_seconds(usage.ru_utime) + in_seconds(usage.ru_stime);
}

}  // namespace

TEST_CASE("every piece runs once, whatever the number of pieces and of threads") {
  for (const int threads : {1, 2, 3, 8}) {
    CAPTURE(threads);
    Workers workers({.threads = threads});
    for (const std::size_t pieces : {0, 1, 2, 7, 8, 1001}) {
      CAPTURE(pieces);
      CHECK(counted(workers, pieces) == std::vector<int>(pieces, 1));
    }
  }
}

TEST_CASE("run after run, with helpers that sleep or poll in between") {
  for (const int spin_us : {0, 30}) {
    Workers workers({.threads = 3, .spin = std::chrono::microseconds(spin_us)});
    for (int round = 0; round < 500; ++round) {
      const auto pieces = static_cast<std::size_t>(round % 9);
      REQUIRE(counted(workers, pieces) == std::vector<int>(pieces, 1));
      if (round % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

TEST_CASE("ranges cover all elements once, and begin at whole pages of bytes") {
  Workers workers({.threads = 4});
  for (const std::size_t width : {1, 2, 4, 8, 64}) {
    for (const std::size_t elements : {std::size_t{0}, std::size_t{1}, kSplitBytes / width - 1,
                                       kSplitBytes / width, 3 * kSplitBytes / width + 17}) {
      CAPTURE(width);
      CAPTURE(elements);
      std::vector<std::uint8_t> taken(elements);
      std::atomic<int> ranges = 0;
      std::atomic<int> unaligned = 0;
      workers.over(elements, width, [&](std::size_t first, std::size_t count) {
        ++ranges;
        if (first * width % Workers::kCutBytes != 0) ++unaligned;
        for (std::size_t i = first; i < first + count; ++i) ++taken[i];
      });
      CHECK(std::ranges::count(taken, 1) == static_cast<std::ptrdiff_t>(elements));
      CHECK((ranges > 1) == (elements * width >= kSplitBytes));
      CHECK(unaligned == 0);
    }
  }
}

TEST_CASE("what a piece throws comes to the caller, and the next run is a run like any other") {
  for (const int threads : {1, 4}) {
    CAPTURE(threads);
    Workers workers({.threads = threads});
    for (std::size_t wrong = 0; wrong < 20; ++wrong) {
      const auto piece = [&](std::size_t index) {
        if (index == wrong) throw std::runtime_error("piece " + std::to_string(index));
      };
      CHECK_THROWS_WITH(workers.run(20, piece), ("piece " + std::to_string(wrong)).c_str());
      CHECK(counted(workers, 9) == std::vector<int>(9, 1));
    }
  }
}

TEST_CASE("helpers are made at the first large call, have names, and end with their owner") {
  const std::size_t before = num_threads_without_helpers();
  {
    Workers workers({.threads = 3});
    CHECK(workers.splits(kSplitBytes));
    CHECK_FALSE(workers.splits(kSplitBytes - 1));
    CHECK(num_threads() == before);
    counted(workers, 1);
    CHECK(num_threads() == before);
    counted(workers, 4);
    CHECK(num_threads() == before + 2);
    CHECK(becomes([] { return num_named("tutti-2") == 1; }));  // the thread sets its name itself
    CHECK(num_named("tutti-3") == 0);
  }
  CHECK(becomes_num_threads(before));
}

TEST_CASE("a store makes threads for large calls alone, and none with the value 1") {
  const std::size_t before = num_threads_without_helpers();
  KVStore one = KVStore::create("local", with_threads(1));
  one.init(3, Tensor::ones({2 * kLarge}));
  one.push(3, Tensor::ones({2 * kLarge}));
  CHECK(num_threads() == before);
  KVStore three = KVStore::create("local", with_threads(3));
  three.init({3, 5}, {Tensor::ones({100}), Tensor::ones({kLarge / 4})});
  three.push(5, Tensor::ones({kLarge / 4}));
  CHECK(num_threads() == before);
  three.init(7, Tensor::ones({kLarge}));
  CHECK(num_threads() == before + 2);
}

TEST_CASE("many stores with threads live side by side") {
  const std::size_t before = num_threads_without_helpers();
  {
    std::vector<KVStore> stores;
    for (int i = 0; i < 12; ++i) stores.push_back(KVStore::create("local", with_threads(3)));
    for (KVStore& kv : stores) kv.init(1, Tensor::ones({kLarge + 1}));
    for (KVStore& kv : stores) kv.push(1, Tensor::full({kLarge + 1}, 2.0f));
    for (KVStore& kv : stores) CHECK(kv.view(1).values<float>()[kLarge] == 2.0f);
    CHECK(num_threads() == before + 24);
  }
  CHECK(becomes_num_threads(before));
}

// A machine that is busy gives the helpers less time, not more.
TEST_CASE("helpers use no processor between calls") {
  Workers workers({.threads = 4, .spin = std::chrono::microseconds(30)});
  counted(workers, 100);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  CHECK(cpu_seconds() - before < 0.1);
}

TEST_CASE("signals go to the program's threads, not to helpers") {
  Workers workers({.threads = 4});
  counted(workers, 100);
  sigset_t usr1;
  sigset_t before;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr1, &before);
  const auto old = std::signal(SIGUSR1, [](int) { _exit(9); });  // a helper took it
  kill(getpid(), SIGUSR1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  sigset_t pending;
  sigpending(&pending);
  CHECK(sigismember(&pending, SIGUSR1) == 1);
  std::signal(SIGUSR1, SIG_IGN);  // discards the pending signal
  std::signal(SIGUSR1, old);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// qemu-user itself has a thread in each process.
TEST_CASE("a forked process has no helpers: it does all pieces itself, and ends" *
          doctest::skip(test::is_emulated())) {
  auto workers = std::make_unique<Workers>(Workers::Options{.threads = 4});
  counted(*workers, 100);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    const bool right = counted(*workers, 100) == std::vector<int>(100, 1) && num_threads() == 1;
    workers.reset();
    _exit(right ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

#if defined(__x86_64__)
TEST_CASE("helpers compute in the floating-point mode that the caller has at the call") {
  Workers workers({.threads = 4});
  counted(workers, 100);
  constexpr std::size_t kPieces = 64;
  const unsigned before = _mm_getcsr();
  constexpr unsigned kFlushToZero = 0x8000;
  for (const bool flush : {true, false}) {
    _mm_setcsr(flush ? before | kFlushToZero : before & ~kFlushToZero);
    std::vector<float> results(kPieces, -1.0f);
    workers.run(kPieces, [&](std::size_t piece) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));  // so that all helpers take part
      const volatile float tiny = std::numeric_limits<float>::min();
      results[piece] = tiny * 0.5f;
    });
    _mm_setcsr(before);
    const float expected = flush ? 0.0f : std::numeric_limits<float>::min() * 0.5f;
    CHECK(results == std::vector<float>(kPieces, expected));
  }
}
#endif

// qemu-user limits no address space.
TEST_CASE("threads that cannot be made are missed aloud, and the work is done without them" *
          doctest::skip(test::is_emulated())) {
  const pid_t child = fork();  // limits only this process
  if (child == 0) {
    alarm(60);
    std::string said;
    Workers workers({.threads = 200, .warn = [&](const std::string& text) { said = text; }});
    rlimit limit{};
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = std::size_t{64} << 20;  // less than the stacks of 200 threads
    setrlimit(RLIMIT_AS, &limit);
    const bool right = counted(workers, 100) == std::vector<int>(100, 1);
    const bool told = said.starts_with("TUTTI_THREADS: made ") &&
                      said.find(" of 199 helper threads: ") != std::string::npos &&
                      said.find("TUTTI_THREADS=1") != std::string::npos;
    _exit(right && told ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  CHECK(status == 0);  // sanitizers reserve more address space than that
#endif
}

// --- the default number of threads ---------------------------------------------------------------

TEST_CASE("cores are counted, not their hardware threads") {
  const test::ScratchFolder folder;
  const auto write = [&](int number, const std::string& siblings) {
    const auto place = folder.path() / ("cpu" + std::to_string(number)) / "topology";
    std::filesystem::create_directories(place);
    std::ofstream(place / "thread_siblings_list") << siblings << '\n';
  };
  write(0, "0,64");
  write(64, "0,64");
  write(1, "1,65");
  tutti::ProcessorSet usable{};
  usable[0] = 0b111;  // the number 2 is unknown
  usable[1] = 0b1;
  const tutti::ProcessorSet cores = tutti::cores_of(usable, folder.path());
  CHECK(cores[0] == 0b111);
  CHECK(tutti::count(cores) == 3);
  CHECK(tutti::count(usable) == 4);
}

TEST_CASE("cores and the cgroup's share of them are divided between the ranks of a host") {
  tutti::ProcessorSet cores{};
  cores[0] = 0xffff;
  CHECK(tutti::cores_per_rank(cores, 0, 1) == 16);
  CHECK(tutti::cores_per_rank(cores, 0, 3) == 5);
  CHECK(tutti::cores_per_rank(cores, 0, 16) == 1);
  CHECK(tutti::cores_per_rank(cores, 0, 40) == 1);
  CHECK(tutti::cores_per_rank(cores, 6, 2) == 3);
  CHECK(tutti::cores_per_rank(cores, 5.9, 2) == 2);
  CHECK(tutti::cores_per_rank({}, 0, 2) == 1);
}

TEST_CASE("ranks that have less than a processor's time each do not spin") {
  tutti::ProcessorSet threads{};
  threads[0] = 0xf;
  CHECK(tutti::ranks_per_core(threads, 0, 1) == 1);
  CHECK(tutti::ranks_per_core(threads, 0, 4) == 1);
  CHECK(tutti::ranks_per_core(threads, 0, 5) == 2);
  CHECK(tutti::ranks_per_core(threads, 1.2, 2) == 2);
  CHECK(tutti::ranks_per_core(threads, 2, 2) == 1);
  CHECK(tutti::ranks_per_core(threads, 0.5, 1) == 2);
  CHECK(tutti::ranks_per_core(threads, 16, 4) == 1);
  CHECK(tutti::ranks_per_core({}, 0, 4) == 1);
}

TEST_CASE("of the quotas of a cgroup and of those above it, of both versions, the least counts") {
  const test::ScratchFolder folder;
  const auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories((folder.path() / path).parent_path());
    std::ofstream(folder.path() / path) << text << '\n';
  };
  const auto quota = [&] {
    return tutti::processor_quota(folder.path() / "groups", folder.path());
  };
  CHECK(quota() == 0);
  write("groups", "0::/job/rank");
  CHECK(quota() == 0);
  write("job/rank/cpu.max", "max 100000");
  CHECK(quota() == 0);
  write("cpu.max", "250000 100000");  // the form in which a container sees its own group
  CHECK(quota() == 2.5);
  write("job/cpu.max", "120000 100000");
  CHECK(quota() == 1.2);
  write("groups", "4:cpu,cpuacct:/job/rank\n3:memory:/job\n0::/");
  CHECK(quota() == 2.5);
  write("cpu/job/rank/cpu.cfs_quota_us", "-1");
  write("cpu/job/rank/cpu.cfs_period_us", "100000");
  CHECK(quota() == 2.5);
  write("cpu/job/cpu.cfs_quota_us", "50000");
  write("cpu/job/cpu.cfs_period_us", "100000");
  CHECK(quota() == 0.5);
  write("cpu,cpuacct/job/rank/cpu.cfs_quota_us", "25000");  // mounted by the list alone
  write("cpu,cpuacct/job/rank/cpu.cfs_period_us", "100000");
  CHECK(quota() == 0.25);
}

namespace {

/// A real cgroup with a quota of 1.2 processors; none without the right to make it.
class RealCgroup {
 public:
  RealCgroup() {
    struct Version {
      const char* mount;
      const char* has;  // a file that every group has there
      const char* file;
      const char* text;
    };
    const std::string name = "tutti-test-" + std::to_string(getpid());
    for (const auto& [mount, has, file, text] :
         {Version{"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "cpu.cfs_quota_us", "120000\n"},
          Version{"/sys/fs/cgroup", "cgroup.controllers", "cpu.max", "120000 100000\n"}}) {
      std::error_code error;
      folder_ = std::filesystem::path(mount) / name;
      if (!std::filesystem::exists(folder_.parent_path() / has, error)) continue;
      if (!std::filesystem::create_directory(folder_, error)) continue;
      std::ofstream limit(folder_ / file);
      is_there_ = static_cast<bool>(limit << text << std::flush);
      if (is_there_) return;
      rmdir(folder_.c_str());
    }
  }
  ~RealCgroup() {
    if (is_there_) rmdir(folder_.c_str());
  }
  RealCgroup(const RealCgroup&) = delete;
  RealCgroup& operator=(const RealCgroup&) = delete;
  [[nodiscard]] bool is_there() const { return is_there_; }
  void enter() const { std::ofstream(folder_ / "cgroup.procs") << getpid() << std::endl; }

 private:
  std::filesystem::path folder_;
  bool is_there_ = false;
};

}  // namespace

TEST_CASE("a process in a real cgroup finds its quota") {
  const RealCgroup group;
  if (!group.is_there()) {
    MESSAGE("skipped: no right to make a cgroup of processors");
    return;
  }
  const test::ChildEnd end = test::in_child([&] {
    group.enter();
    return std::to_string(static_cast<int>(std::lround(10 * tutti::processor_quota())));
  });
  CHECK(end.text == "12");
}

TEST_CASE("helpers keep the processors of their owner's creation, whatever is bound later") {
  cpu_set_t before;
  REQUIRE(pthread_getaffinity_np(pthread_self(), sizeof before, &before) == 0);
  if (CPU_COUNT(&before) < 2) {
    MESSAGE("skipped: one processor");
    return;
  }
  Workers workers({.threads = 3, .processors = std::make_shared<const ProcessorMask>()});
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int number = 0; CPU_COUNT(&one) == 0; ++number) {
    if (CPU_ISSET(number, &before)) CPU_SET(number, &one);
  }
  pthread_setaffinity_np(pthread_self(), sizeof one, &one);  // as OpenMP binds threads
  std::atomic<int> bound{0};
  std::atomic<int> seen{0};
  const pthread_t owner = pthread_self();
  workers.run(3, [&](std::size_t) {  // each waits for the others, so each thread has one
    cpu_set_t own;
    pthread_getaffinity_np(pthread_self(), sizeof own, &own);
    if (!pthread_equal(owner, pthread_self()) && !CPU_EQUAL(&own, &before)) ++bound;
    ++seen;
    while (seen.load() < 3) std::this_thread::yield();
  });
  pthread_setaffinity_np(pthread_self(), sizeof before, &before);
  CHECK(bound.load() == 0);
}

TEST_CASE("a process under a launcher shares its host's cores, as far as the launcher says") {
  unsetenv("MPI_LOCALNRANKS");
  unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  CHECK(tutti::launched_ranks() == 1);
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "4", 1);
  CHECK(tutti::launched_ranks() == 4);
  setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "none", 1);
  CHECK(tutti::launched_ranks() == 1);
  unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
}
