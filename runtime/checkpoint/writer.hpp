// SPDX-License-Identifier: Apache-2.0
// Which job has written a generation. Two jobs that save into one folder would take turns, and one
// of them would resume from the other's values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace tutti::checkpoint {

/// Rank 0 of the job. Empty `host`: the manifest does not say.
struct Writer {
  std::string job;  ///< "Slurm job 7_3", or empty
  std::string host;
  std::int64_t process = 0;  ///< its number
  std::int64_t begun = 0;    ///< when, in seconds since 1970
  std::int64_t written = 0;  ///< when it wrote, likewise
  friend bool operator==(const Writer&, const Writer&) = default;
};

/// This process, which writes now.
Writer this_writer();

/// Looks who has written the newest generation in `directory`. It is another job's that runs at the
/// same time if it was written after `own` had begun: a job that resumes finds older ones. Warns.
/// Errors  io: that process is alive on this host.
void require_only_writer(const std::filesystem::path& directory, std::uint64_t generation,
                         const Writer& other, const Writer& own);

}  // namespace tutti::checkpoint
