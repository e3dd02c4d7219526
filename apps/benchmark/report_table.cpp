// SPDX-License-Identifier: Apache-2.0
#include "apps/benchmark/report_table.hpp"

#include "apps/benchmark/cases.hpp"
#include "apps/benchmark/text.hpp"

namespace apps::benchmark {
namespace {

constexpr std::size_t kSizeWidth = 12;
constexpr std::size_t kCountWidth = 12;
constexpr std::size_t kTypeWidth = 9;
constexpr std::size_t kOpWidth = 6;
constexpr std::size_t kTimeWidth = 9;
constexpr std::size_t kRateWidth = 8;
constexpr std::size_t kWrongWidth = 7;
constexpr std::size_t kBackendWidth = 2 * kTimeWidth + 2 * kRateWidth + kWrongWidth;

std::string size_columns(const std::string& size, const std::string& count, const std::string& type,
                         const std::string& redop) {
  return column(size, kSizeWidth) + column(count, kCountWidth) + column(type, kTypeWidth) +
         column(redop, kOpWidth);
}

std::string backend_columns(const std::string& p50, const std::string& p99,
                            const std::string& algbw, const std::string& busbw,
                            const std::string& wrong) {
  return "  " + column(p50, kTimeWidth) + column(p99, kTimeWidth) + column(algbw, kRateWidth) +
         column(busbw, kRateWidth) + column(wrong, kWrongWidth);
}

/// "----- tutti -----", over a backend's columns.
std::string backend_title(const std::string& name) {
  const std::size_t dashes = kBackendWidth - name.size() - 4;
  return "    " + std::string(dashes / 2, '-') + " " + name + " " +
         std::string(dashes - dashes / 2, '-');
}

/// What Tutti is compared with.
std::vector<std::string> peers(const Options& options) {
  if (!options.has_backend("tutti")) return {};
  std::vector<std::string> others = options.backends;
  std::erase(others, "tutti");
  return others;
}

/// Of "mpi/tutti", with a space before it.
std::size_t ratio_width(const std::string& peer) { return peer.size() + 7; }

std::string column_names(const Options& options) {
  std::string titles = "#" + std::string(kSizeWidth + kCountWidth + kTypeWidth + kOpWidth - 1, ' ');
  std::string names = "#" + size_columns("size", "count", "type", "redop").substr(1);
  std::string units = "#" + size_columns("(B)", "(elements)", "", "").substr(1);
  for (const std::string& backend : options.backends) {
    titles += backend_title(backend);
    names += backend_columns("p50", "p99", "algbw", "busbw", "#wrong");
    units += backend_columns("(us)", "(us)", "(GB/s)", "(GB/s)", "");
  }
  for (const std::string& peer : peers(options)) {
    names += column(peer + "/tutti", ratio_width(peer));
  }
  units.resize(units.find_last_not_of(' ') + 1);
  return titles + "\n" + names + "\n" + units + "\n";
}

std::string iterations_text(const Options& options) {
  const std::string warmups = ", " + std::to_string(options.warmups) + " to warm up";
  if (options.iterations) return std::to_string(*options.iterations) + " iterations" + warmups;
  return "20 to 2000 iterations" + warmups;
}

std::string what_text(const Options& options) {
  const Case& chosen = find_case(options.collective);
  std::string text = options.collective;
  if (!options.model.empty()) text += " of " + options.model;
  if (chosen.has_sizes) text += std::string(", ") + to_string(options.dtype);
  if (chosen.reduces) text += std::string(" ") + to_string(options.op);
  if (options.collective == "broadcast" || options.collective == "reduce") text += ", root 0";
  return text;
}

std::string buffers_text(const Options& options) {
  if (options.on_gpu) return "in memory of the GPUs; MPI's go by way of the host";
  std::string text;
  for (const std::string& backend : options.backends) {
    text += backend + "'s in " +
            (backend == "tutti" && options.buffers == "store" ? "store" : "user") + " memory, ";
  }
  return text + (options.cold ? "cold" : "hot");
}

}  // namespace

std::string table_head(const Options& options, const Machine& machine) {
  std::string text = "# collective-benchmark: " + what_text(options) + "\n";
  text += "# ranks: " + std::to_string(machine.ranks) + " on " + std::to_string(machine.nodes) +
          (machine.nodes == 1 ? " node" : " nodes") + "; hosts: " + hosts_text(machine.hosts) +
          "\n";
  text += "# processor: " + machine.processor + ", last-level cache " +
          bytes_text(static_cast<double>(machine.cache_bytes)) + "\n";
  text += "# " + machine.library + ", vector instructions: " + machine.vector_instructions +
          "; MPI: " + machine.mpi + "\n";
  for (const std::string& line : machine.algorithms) text += "# " + line + "\n";
  text += "# buffers: " + buffers_text(options) + "; " + iterations_text(options) +
          (options.check ? "; every element is checked" : "; results are not checked") + "\n";
  text +=
      "# times are the longest over the ranks, from a common barrier on; 1 GB = 10^9 bytes\n#\n";
  return text + column_names(options);
}

std::string table_row(const Row& row, const Options& options) {
  std::string line =
      size_columns(std::to_string(row.bytes), std::to_string(row.count), row.type, row.redop);
  for (const auto& result : row.results) {
    if (!result) {
      line += backend_columns("n/a", "n/a", "n/a", "n/a", "n/a");
      continue;
    }
    line += backend_columns(time_text(result->time_us.p50), time_text(result->time_us.p99),
                            rate_text(result->algbw_gbs), rate_text(result->busbw_gbs),
                            result->wrong ? std::to_string(*result->wrong) : "N/A");
  }
  for (const std::string& peer : peers(options)) {
    const auto times = ratio(row, peer);
    line += column(times ? format("%.2f", *times) : "n/a", ratio_width(peer));
  }
  if (row.packed_bytes && row.bytes > 0) {
    line += format("\n#%*zu  B on the wire to each receiver, %.2f %% (%s)",
                   static_cast<int>(kSizeWidth - 1), *row.packed_bytes,
                   100.0 * static_cast<double>(*row.packed_bytes) / static_cast<double>(row.bytes),
                   tutti::compression::to_string(options.compression).c_str());
  }
  return line + "\n";
}

std::string table_foot(std::span<const Row> rows, const Options& options,
                       const MemorySpeed& memory) {
  std::string text =
      "# Memory : " +
      format("%.1f GB/s per rank, %.1f GB/s in all", memory.per_rank_gbs, memory.total_gbs) +
      " (two-input add, non-temporal stores, all ranks at once)\n";
  if (!options.check) return text + "# Out of bounds values : not checked\n";
  const std::uint64_t wrong = count_wrong(rows);
  return text + "# Out of bounds values : " + std::to_string(wrong) +
         (wrong == 0 ? " OK\n" : " FAILED\n");
}

}  // namespace apps::benchmark
