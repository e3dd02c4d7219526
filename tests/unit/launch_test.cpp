// SPDX-License-Identifier: Apache-2.0
// Which launcher has started a process, by the variables that it leaves; and whether MPI agrees.
#include "tutti/launch.hpp"

#include <doctest/doctest.h>
#include <map>
#include <optional>
#include <string>
#include <vector>

using tutti::Launch;

namespace {

using Variables = std::map<std::string, std::string>;

std::optional<Launch> launch_in(const Variables& variables) {
  return tutti::find_launch([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

/// What a job of one rank to MPI is told under these variables.
std::string said(const Variables& variables, const std::string& mpi = "MPICH 4.0.2") {
  return tutti::launch_mismatch(launch_in(variables), 1, mpi);
}

Variables step_of_srun(const std::string& tasks) {
  return {{"SLURM_JOB_ID", "7"},
          {"SLURM_NTASKS", tasks},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEP_NUM_TASKS", tasks},
          {"SLURM_PROCID", "0"}};
}

}  // namespace

TEST_CASE("each launcher is known by the variables that it leaves") {
  struct Row {
    Variables variables;
    std::string launcher;
    std::string evidence;
  };
  const Row rows[] = {
      {{{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"PMIX_RANK", "1"}},
       "mpirun of Open MPI",
       "OMPI_COMM_WORLD_SIZE=2, OMPI_COMM_WORLD_RANK=1"},
      {{{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}},
       "mpiexec of MPICH, Intel MPI or another one with PMI",
       "PMI_SIZE=2, PMI_RANK=1"},
      {{{"MV2_COMM_WORLD_SIZE", "2"}}, "mpiexec of MVAPICH", "MV2_COMM_WORLD_SIZE=2"},
      {{{"FLUX_JOB_SIZE", "2"}, {"FLUX_TASK_RANK", "1"}},
       "flux run",
       "FLUX_JOB_SIZE=2, FLUX_TASK_RANK=1"},
      {step_of_srun("3"), "srun", "SLURM_STEP_NUM_TASKS=3, SLURM_PROCID=0"},
      {{{"PALS_RANKID", "1"}}, "mpiexec of PALS", "PALS_RANKID=1"},
      {{{"ALPS_APP_PE", "1"}}, "aprun", "ALPS_APP_PE=1"}};
  for (const Row& row : rows) {
    CAPTURE(row.launcher);
    const std::optional<Launch> launch = launch_in(row.variables);
    REQUIRE(launch.has_value());
    CHECK(launch->launcher == row.launcher);
    CHECK(launch->evidence == row.evidence);
    CHECK(said(row.variables).starts_with(row.launcher + " has started "));
  }
}

TEST_CASE("the message has both numbers, both names and what to do") {
  CHECK(said({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "1"}}) ==
        "mpirun of Open MPI has started 4 processes (OMPI_COMM_WORLD_SIZE=4, "
        "OMPI_COMM_WORLD_RANK=1), but to the MPI of this program, MPICH 4.0.2, each of them is a "
        "job of one rank: they would not know of each other; start it with the launcher of MPICH "
        "4.0.2 (launch.sh finds it), or build it with the launcher's MPI; if each is meant to be "
        "alone, TUTTI_LAUNCHER=ignore");
  CHECK(said(step_of_srun("2")).find("or srun --mpi=pmi2 where") != std::string::npos);
  CHECK(said(step_of_srun("2"), "Open MPI v4.1.4").find("or srun --mpi=pmix where") !=
        std::string::npos);
}

TEST_CASE("a process without a launcher, and a launcher of one process, are nothing to speak of") {
  CHECK_FALSE(launch_in({}).has_value());
  CHECK_FALSE(launch_in({{"PMIX_RANK", "0"}}).has_value());
  CHECK(said({}).empty());
  CHECK(said({{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}}).empty());
  CHECK(said({{"OMPI_COMM_WORLD_SIZE", "1"}}).empty());
  CHECK(said(step_of_srun("1")).empty());
  CHECK(said({{"PMI_SIZE", ""}}).empty());
  CHECK(said({{"PMI_SIZE", "two"}}).empty());
}

TEST_CASE("a batch script of Slurm's is no launch, and neither is an interactive step") {
  CHECK(said({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}).empty());
  for (const char* step : {"4294967290", "4294967291", "4294967292"}) {
    Variables variables = step_of_srun("8");
    variables["SLURM_STEP_ID"] = step;
    CHECK(said(variables).empty());
  }
}

TEST_CASE("of a launcher that another one has started, the inner one counts") {
  Variables variables = step_of_srun("2");  // one mpirun -np 1 on each of two nodes
  variables["OMPI_COMM_WORLD_SIZE"] = "1";
  CHECK(said(variables).empty());
  variables["OMPI_COMM_WORLD_SIZE"] = "4";
  CHECK_FALSE(said(variables).empty());
}

TEST_CASE("torchrun's variables are a launch without an MPI, unless an MPI has launched several") {
  const Variables torchrun = {{"RANK", "1"},
                              {"WORLD_SIZE", "2"},
                              {"LOCAL_RANK", "1"},
                              {"MASTER_ADDR", "127.0.0.1"},
                              {"MASTER_PORT", "29500"}};
  const auto mpi_with = [&](const Variables& others) {
    Variables variables = torchrun;
    for (const auto& [name, value] : others) variables[name] = value;
    const std::optional<Launch> launch = launch_in(variables);
    return launch ? launch->mpi : "nobody";
  };
  CHECK(launch_in(torchrun)->evidence == "WORLD_SIZE=2, RANK=1");
  CHECK(mpi_with({}) == "none");
  CHECK(mpi_with(step_of_srun("2")) == "none");
  CHECK(mpi_with({{"OMPI_COMM_WORLD_SIZE", "1"}}) == "none");
  CHECK(mpi_with({{"OMPI_COMM_WORLD_SIZE", "2"}}) == "openmpi");
  CHECK(mpi_with({{"PMI_SIZE", "4"}, {"PMI_RANK", "1"}}) == "mpich");
  Variables of_pmix = step_of_srun("2");
  of_pmix["PMIX_RANK"] = "1";
  CHECK(mpi_with(of_pmix).empty());
  const std::vector<Variables::value_type> wrong = {{"WORLD_SIZE", "1"},
                                                    {"RANK", "2"},
                                                    {"RANK", ""},
                                                    {"MASTER_ADDR", ""},
                                                    {"MASTER_PORT", "http"}};
  for (const auto& variable : wrong) {
    CAPTURE(variable.first);
    CHECK(mpi_with({variable}) == "nobody");
  }
}

TEST_CASE("where the launcher tells only ranks, all but rank 0 notice") {
  CHECK(said({{"PALS_RANKID", "0"}}).empty());
  CHECK(said({{"PALS_RANKID", "3"}}).find("has started several processes (PALS_RANKID=3)") !=
        std::string::npos);
}

TEST_CASE("a job of several ranks to MPI agrees with its launcher") {
  CHECK(tutti::launch_mismatch(launch_in({{"PMI_SIZE", "2"}}), 2, "MPICH 4.0.2").empty());
}
