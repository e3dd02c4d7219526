// SPDX-License-Identifier: Apache-2.0
// collective-benchmark: its command line, and its plan of sizes.
#include <doctest/doctest.h>
#include <initializer_list>
#include <string>
#include <vector>

#include "tutti/error.hpp"

#include "apps/benchmark/options.hpp"
#include "apps/benchmark/runner.hpp"
#include "runtime/gpu/gpus.hpp"
#include "tests/support/fake_accelerator.hpp"
#include "tests/unit/benchmark_arguments.hpp"

using namespace apps::benchmark;
using tutti::DType;
using tutti::ReduceOp;

namespace {

std::string refusal(std::initializer_list<const char*> arguments) {
  try {
    test::parse(arguments);
    return "none";
  } catch (const tutti::Error& error) {
    CHECK(error.code() == tutti::ErrorCode::invalid_argument);
    return error.what();
  }
}

}  // namespace

TEST_CASE("without options the defaults are those of the documentation") {
  const Options options = test::parse({});
  CHECK(options.min_bytes == 8);
  CHECK(options.max_bytes == 128 << 20);
  CHECK(options.step_factor == 2);
  CHECK(options.collective == "allreduce");
  CHECK(options.backends == std::vector<std::string>{"tutti", "mpi"});
  CHECK(options.buffers == std::vector<std::string>{"store"});
  CHECK(options.cache == CacheMode::fresh);
  CHECK_FALSE(options.iterations.has_value());
  CHECK(options.warmups == 5);
  CHECK(options.check);
  CHECK(options.tolerance == 10.0);
  CHECK(sizes(options).size() == 25);
}

TEST_CASE("short and long names and suffixes are read") {
  const Options options =
      test::parse({"-b", "1K", "-e", "64KiB", "-f", "8", "-d", "bfloat16", "-o", "max", "-n", "7",
                   "-w", "0", "-c", "0", "--ranks-per-node", "3,5"});
  CHECK(sizes(options) == std::vector<std::size_t>{1024, 8192, 65536});
  CHECK(options.dtype == tutti::DType::bfloat16);
  CHECK(options.op == tutti::ReduceOp::max);
  CHECK(options.iterations == 7);
  CHECK_FALSE(options.check);
  CHECK(options.ranks_per_node == std::vector<int>{3, 5});
}

TEST_CASE("nccl-tests' names of types, all of them, and steps of bytes are read") {
  CHECK(test::parse({"-d", "half,float,double"}).dtypes ==
        std::vector{DType::float16, DType::float32, DType::float64});
  CHECK(test::parse({"-d", "half"}).dtype == DType::float16);
  CHECK(test::parse({"-d", "all"}).dtypes ==
        std::vector{DType::float16, DType::bfloat16, DType::float32, DType::float64, DType::int8,
                    DType::uint8, DType::int32, DType::int64});
  CHECK(test::parse({"-o", "all"}).ops ==
        std::vector{ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg});
  CHECK(test::parse({"-o", "all", "-d", "half,int8"}).ops ==
        std::vector{ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max});
  CHECK(sizes(test::parse({"-b", "1K", "-e", "4K", "-i", "1K"})) ==
        std::vector<std::size_t>{1024, 2048, 3072, 4096});
  CHECK(sizes(test::parse({"-b", "8", "-e", "17179869183G", "-i", "17179869182G"})).size() == 2);
  CHECK(test::parse({"-m", "20"}).calls_per_iteration == 20);
  CHECK(test::parse({"--times", "avg,min"}).times == std::vector<std::string>{"avg", "min"});
}

TEST_CASE("there is a pass for each type, operation and root that the collective knows") {
  const auto passes_of = [](std::initializer_list<const char*> arguments, int ranks) {
    std::string text;
    for (const Options& pass : passes(test::parse(arguments), ranks)) {
      text += std::string(to_string(pass.dtype)) + " " + to_string(pass.op) + " " +
              root_text(pass) + ";";
    }
    return text;
  };
  CHECK(passes_of({}, 2) == "float32 sum 0;");
  CHECK(passes_of({"-d", "half,int8", "-o", "sum,max"}, 2) ==
        "float16 sum 0;float16 max 0;int8 sum 0;int8 max 0;");
  CHECK(passes_of({"--collective", "broadcast", "-o", "all", "-r", "all"}, 3) ==
        "float32 sum 0;float32 sum 1;float32 sum 2;");
  CHECK(passes_of({"--collective", "reduce", "-r", "2"}, 3) == "float32 sum 2;");
  try {
    passes(test::parse({"--collective", "reduce", "-r", "3"}), 3);
    FAIL("planned");
  } catch (const tutti::Error& error) {
    CHECK(std::string(error.what()) ==
          "--root: expected 0 to 2, the ranks of this job, found 3; --help lists the options");
  }
}

TEST_CASE("a job has its pass's type, operation and root, and its contender's place") {
  const Options options = test::parse(
      {"--collective", "reduce", "-d", "half,int8", "-o", "sum,max", "-r", "all", "--place", "in"});
  const Options last = passes(options, 3).back();
  const Layout layout = find_case("reduce").layout(64, 1, 3);
  const Job job = job_of(last, layout, last.contenders().front(), 1, 3);
  CHECK(job.pattern.dtype() == DType::int8);
  CHECK(job.root == 2);
  CHECK(job.rank == 1);
  CHECK(job.ranks == 3);
  CHECK(job.in_place);
  CHECK(job.calls_per_iteration == 1);
  CHECK(job_of(test::parse({"-m", "9"}), layout, {"mpi", "user"}, 0, 3).calls_per_iteration == 9);
}

TEST_CASE("each backend and kind of memory is measured out of place and in place, if asked") {
  std::string text;
  for (const Contender& contender :
       test::parse({"--place", "out,in", "--buffers", "store,user"}).contenders()) {
    text += contender.backend + " " + contender.buffers + (contender.in_place ? " in;" : " out;");
  }
  CHECK(text ==
        "tutti store out;tutti user out;mpi user out;tutti store in;tutti user in;mpi user in;");
}

TEST_CASE("the largest sizes do not overflow") {
  const Options options = test::parse({"-b", "8G", "-e", "17179869183G", "-f", "1000000"});
  CHECK(sizes(options).size() == 2);
}

TEST_CASE("a wrong option is refused in words") {
  const auto has = [](const std::string& text, const char* part) {
    CAPTURE(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(refusal({"--fast"}), "unrecognised option '--fast'");
  has(refusal({"-b", "many"}), "--minbytes: ");
  has(refusal({"-b", "0"}), "--minbytes: expected at least 1");
  has(refusal({"-b", "2K", "-e", "1K"}), "--maxbytes is less than --minbytes");
  has(refusal({"-f", "1"}), "--stepfactor: expected at least 2");
  has(refusal({"-d", "float8"}), "--datatype: ");
  has(refusal({"-o", "sum,avg", "-d", "half,int8"}), "--op: there is no avg of int8");
  has(refusal({"-o", "xor"}), "--op: expected sum, prod, min, max or avg, found 'xor'");
  has(refusal({"-d", "half,float16"}), "--datatype: float16 is there twice");
  has(refusal({"-d", ""}), "--datatype: expected a name or all");
  has(refusal({"-o", "sum,sum"}), "--op: sum is there twice");
  has(refusal({"-i", "0"}), "--stepbytes: expected at least 1");
  has(refusal({"-i", "many"}), "--stepbytes: ");
  has(refusal({"-i", "8", "-f", "2"}), "--stepbytes and --stepfactor: name one of the two");
  has(refusal({"-r", "1"}), "--root belongs to broadcast, reduce, gather and scatter");
  has(refusal({"-r", "all"}), "--root belongs to broadcast, reduce, gather and scatter");
  has(refusal({"--collective", "reduce", "-r", "-1"}), "--root: expected a rank or all, found");
  has(refusal({"--collective", "reduce", "-r", "1x"}), "--root: expected a rank or all, found");
  has(refusal({"-m", "0"}), "--agg_iters: expected at least 1");
  has(refusal({"-m", "2", "--cache", "cold"}), "--agg_iters and --cache cold: each call has");
  has(refusal({"--place", "beside"}),
      "--place: expected out or in, or several as in out,in; found");
  has(refusal({"--place", "in", "--collective", "allgather"}),
      "--place in belongs to allreduce and reduce");
  has(refusal({"--place", "in", "--cache", "hot"}), "--place in and --cache hot: the second call");
  has(refusal({"--place", "in", "-m", "2"}), "--place in and --agg_iters: the second call");
  has(refusal({"--place", "out,in", "--plot", "a.svg"}), "--plot is about one --place");
  has(refusal({"--times", "p90"}), "--times: expected p50, p99, avg, min or max, or several");
  for (const char* option : {"-d", "-o"}) {
    has(refusal({option, "all", "--plot", "a.svg"}), "--plot and --min-busbw are about one type");
    has(refusal({option, "all", "--min-busbw", "1"}), "--plot and --min-busbw are about one type");
  }
  has(refusal({"-n", "0"}), "--iters: expected at least 1");
  has(refusal({"-w", "-1"}), "--warmup_iters: expected at least 0");
  has(refusal({"-c", "2"}), "--check: expected 0 or 1");
  has(refusal({"--collective", "gatherall"}), "--collective: expected one of allreduce, ");
  has(refusal({"--backend", "nccl"}), "--backend nccl belongs to --device gpu");
  has(refusal({"--backend", "gloo"}),
      "--backend: expected tutti, mpi or nccl, or several as in tutti,mpi; found 'gloo'");
  has(refusal({"--backend", "mpi,mpi"}), "--backend: mpi is there twice");
  tutti::gpus::replace_gpus(nullptr);
  has(refusal({"--device", "gpu"}), "--device gpu: none: a test has taken them away");
  const test::FakeGpus gpus(1);
  has(refusal({"--device", "gpu", "--collective", "broadcast"}),
      "--device gpu: on GPUs there are pushpull and allreduce");
  has(refusal({"--device", "gpu", "-o", "max"}), "--device gpu: on GPUs there are");
  has(refusal({"--device", "gpu", "-o", "all"}), "--device gpu: on GPUs there are");
  has(refusal({"--device", "gpu", "--place", "in"}), "--place in belongs to --device cpu");
  has(refusal({"--device", "gpu", "--compression", "2bit"}),
      "--compression belongs to --collective pushpull of float32");
  has(refusal({"--buffers", "pinned"}),
      "--buffers: expected store or user, or several as in store,user; found");
  has(refusal({"--buffers", "user,user"}), "--buffers: user is there twice");
  has(refusal({"--buffers", "store,user", "--collective", "barrier"}), "--buffers: both belong to");
  has(refusal({"--buffers", "store,user", "--backend", "mpi"}), "--buffers: both belong to");
  has(refusal({"--cache", "warm"}), "--cache: expected hot, cold or fresh, found 'warm'");
  has(refusal({"--ranks-per-node", "0"}), "--ranks-per-node: ");
  has(refusal({"--min-busbw", "nan"}), "--min-busbw: ");
  has(refusal({"--min-busbw", "1", "--backend", "mpi"}), "--min-busbw is about tutti");
  has(refusal({"--tolerance", "-1"}), "--tolerance: ");
  has(refusal({"--model", "resnet50"}), "--model belongs to --collective pushpull");
  has(refusal({"--collective", "pushpull", "-o", "max"}), "a push sums");
  has(refusal({"--backend", "mpi", "-d", "float16"}), "MPI cannot reduce float16");
  has(refusal({"--collective", "barrier", "--plot", "a.svg"}), "barrier has none");
}

TEST_CASE("the memory is measured where a tensor is large and on the CPU, and else not at all") {
  const auto measures = [](std::initializer_list<const char*> arguments) {
    const Options options = test::parse(arguments);
    return is_about_memory(options, plan(options, 2));
  };
  CHECK(measures({}));
  CHECK(measures({"-b", "1M", "-e", "1M"}));
  CHECK(measures({"--collective", "pushpull", "--model", "resnet50"}));
  CHECK_FALSE(measures({"-e", "1023K"}));
  CHECK_FALSE(measures({"--collective", "barrier"}));
}

TEST_CASE("what is measured is planned before anything is allocated") {
  CHECK(plan(test::parse({"-b", "8", "-e", "32", "--collective", "allgather"}), 3).size() == 2);
  CHECK(plan(test::parse({"--collective", "barrier"}), 3).size() == 1);
  CHECK(
      plan(test::parse({"--collective", "pushpull", "--model", "bert-base"}), 3)[0].pairs.size() ==
      199);
  const auto refused = [](const Options& options, const char* part) {
    try {
      plan(options, 2);
      FAIL("planned");
    } catch (const tutti::Error& error) {
      CHECK(error.code() == tutti::ErrorCode::invalid_argument);
      CHECK_MESSAGE(std::string(error.what()).find(part) != std::string::npos, error.what());
    }
  };
  refused(test::parse({"-e", "8", "-d", "int64", "--collective", "allgather"}),
          "--maxbytes: too small");
  refused(test::parse({"-b", "3G", "-e", "3G", "-d", "int8"}),
          "MPI's calls cannot count 3221225472");
  CHECK(plan(test::parse({"-b", "3G", "-e", "3G", "-d", "int8", "--backend", "tutti"}), 2).size() ==
        1);
}
