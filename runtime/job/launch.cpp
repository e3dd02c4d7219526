// SPDX-License-Identifier: Apache-2.0
#include "tutti/launch.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace tutti {

namespace {

/// The variables that a launcher sets in the environment of each process; null for those that it
/// lacks.
struct Trace {
  const char* launcher;
  const char* size;
  const char* rank;
  const char* mpi;  ///< see Launch::mpi
};

/// IBM's jsrun sets the same variables as Open MPI's mpirun. For ALPS and PALS only the rank is
/// known. The variables of PMIx prove nothing: Open MPI sets them itself in a process that was not
/// launched.
constexpr std::array kTraces = {
    Trace{"mpirun of Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "openmpi"},
    Trace{"mpiexec of MPICH, Intel MPI or another one with PMI", "PMI_SIZE", "PMI_RANK", "mpich"},
    Trace{"mpiexec of MVAPICH", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "mpich"},
    Trace{"flux run", "FLUX_JOB_SIZE", "FLUX_TASK_RANK", ""},
    Trace{"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", ""},
    Trace{"mpiexec of PALS", nullptr, "PALS_RANKID", "mpich"},
    Trace{"aprun", nullptr, "ALPS_APP_PE", "mpich"},
};

/// Returns -1 if the variable is not set, or is not a number.
long long number_in(const Variable& variable, const char* name) {
  const char* text = name == nullptr ? nullptr : variable(name);
  if (text == nullptr) return -1;
  long long number = -1;
  const char* end = text + std::strlen(text);
  const auto [read_to, error] = std::from_chars(text, end, number);
  return error == std::errc() && read_to == end ? number : -1;
}

/// True in a step of srun, which Slurm numbers from 0. The batch script, an interactive shell and
/// the like are steps with the highest numbers, or without a number.
bool is_step_of_srun(const Variable& variable) {
  constexpr long long kFirstSpecialStep = 0xfffffff0;
  const long long step = number_in(variable, "SLURM_STEP_ID");
  return step >= 0 && step < kFirstSpecialStep;
}

std::optional<Launch> find(const Trace& trace, const Variable& variable) {
  const long long size = number_in(variable, trace.size);
  const long long rank = number_in(variable, trace.rank);
  if (trace.size == nullptr ? rank < 0 : size < 1) return std::nullopt;
  if (std::strcmp(trace.launcher, "srun") == 0 && !is_step_of_srun(variable)) return std::nullopt;
  Launch launch{trace.launcher, "", static_cast<int>(std::max(0LL, size)), static_cast<int>(rank),
                trace.mpi};
  if (size > 0) launch.evidence = std::string(trace.size) + "=" + std::to_string(size);
  if (rank >= 0) {
    launch.evidence +=
        (size > 0 ? ", " : "") + std::string(trace.rank) + "=" + std::to_string(rank);
  }
  return launch;
}

/// Reads the variables that torchrun, Ray and scripts of Slurm's give each process of
/// torch.distributed. A process that is alone is no launch.
std::optional<Launch> find_without_mpi(const Variable& variable) {
  const char* address = variable("MASTER_ADDR");
  const bool has_address = address != nullptr && *address != '\0';
  if (!has_address || number_in(variable, "MASTER_PORT") < 0) return std::nullopt;
  std::optional<Launch> launch =
      find(Trace{"torchrun or its like", "WORLD_SIZE", "RANK", "none"}, variable);
  const bool is_one_of_several = launch && launch->size > 1 && launch->rank >= 0;
  return is_one_of_several && launch->rank < launch->size ? launch : std::nullopt;
}

/// Without PMI the processes of srun know nothing of each other.
bool has_pmi(const Variable& variable) {
  return variable("PMIX_RANK") != nullptr || variable("PMI_RANK") != nullptr;
}

/// Returns the command that starts a program of this MPI under Slurm's launcher.
std::string srun_option(const std::string& mpi) {
  return mpi.starts_with("Open MPI") ? "srun --mpi=pmix" : "srun --mpi=pmi2";
}

}  // namespace

std::optional<Launch> find_launch() {
  return find_launch([](const char* name) { return std::getenv(name); });
}

std::optional<Launch> find_launch(const Variable& variable) {
  std::optional<Launch> found;
  for (const Trace& trace : kTraces) {
    std::optional<Launch> launch = find(trace, variable);
    if (!launch || (found && (launch->size == 0 || launch->size >= found->size))) continue;
    found = std::move(launch);
  }
  const bool is_srun_alone = found && found->launcher == "srun" && !has_pmi(variable);
  if (found && found->size != 1 && !is_srun_alone) return found;
  std::optional<Launch> without_mpi = find_without_mpi(variable);
  return without_mpi ? without_mpi : found;
}

std::string launch_mismatch(const std::optional<Launch>& launch, int world_size,
                            const std::string& mpi) {
  if (!launch || world_size != 1) return {};
  if (launch->size <= 1 && (launch->size == 1 || launch->rank <= 0)) return {};
  const std::string number =
      launch->size > 1 ? std::to_string(launch->size) + " processes" : "several processes";
  std::string remedy = "start it with the launcher of " + mpi;
  if (launch->launcher == "srun") remedy += ", or " + srun_option(mpi) + " where Slurm has it";
  return launch->launcher + " has started " + number + " (" + launch->evidence +
         "), but to the MPI of this program, " + mpi +
         ", each of them is a job of one rank: they would not know of each other; " + remedy +
         " (launch.sh finds it), or build it with the launcher's MPI; if each is meant to be "
         "alone, TUTTI_LAUNCHER=ignore";
}

}  // namespace tutti
