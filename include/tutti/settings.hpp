// SPDX-License-Identifier: Apache-2.0
// Every setting of the library, in one struct that is read once.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "tutti/export.h"
#include "tutti/verify.hpp"

namespace tutti {

enum class LogLevel { quiet, warning, info, debug };

/// The settings. from_environment() reads them from TUTTI_* variables; a program may also fill the
/// struct itself. All but `log`, `prometheus` and `mpi` must be equal on all ranks. When a store or
/// communicator is created, they are compared, and every value is checked against its limits.
struct TUTTI_API Settings {
  /// TUTTI_TIMEOUT: how long a collective call waits for the other ranks before it fails.
  /// Seconds (fractions allowed). Default 300; 0 is never. A warning names the missing ranks at a
  /// tenth of it, at the latest after 30 s. Once it has passed, the ranks ask each other who is
  /// missing, which takes a second or a few.
  std::chrono::duration<double> timeout{300.0};

  /// TUTTI_GRACE: how long a call waits for the other ranks after SIGTERM has asked this process to
  /// end (see PreemptionSignals). Seconds above 0 (fractions allowed). Default 30: the time that
  /// batch systems leave a job before they kill it.
  std::chrono::duration<double> grace{30.0};

  /// TUTTI_RANKS_PER_NODE: splits a host into virtual nodes, for tests and experiments: "4" gives
  /// nodes of four ranks, "3,5" a node of three and one of five. Default empty: a host is a node.
  std::vector<int> ranks_per_node;

  /// TUTTI_REPRODUCIBLE: 1 gives the same bits for every layout of the same number of ranks over
  /// nodes, at the price of more bytes between nodes. Sums by NCCL, if TUTTI_GPU_PATH asks for
  /// them, are an error then. Default 0.
  bool reproducible = false;

  /// TUTTI_ASYNC: 1 makes KVStore::push() to keys in the host's memory asynchronous, as in MXNet:
  /// it returns at once, and pull() waits for its keys. Default 0.
  bool asynchronous = false;

  /// TUTTI_CHUNK_BYTES: the chunks in which a node reduces data that cannot be reduced in place; in
  /// a job of one node, this times the threads of a rank, up to 16M.
  /// Bytes, suffixes K, M, G (and KiB, MiB, GiB) are powers of 1024; 4K to 16M, a multiple of 64.
  /// Default 256K.
  std::size_t chunk_bytes = std::size_t{256} << 10;

  /// TUTTI_PIECE_BYTES: the bytes that a node sends to another at a time; "halving" sends up to
  /// half a share. Bytes with suffix, 4K to 16M, a multiple of 64. Default 32K, which MPI sends at
  /// once. MPI asks the receiver before it sends more, and the answer waits behind the data that
  /// goes the other way. Where that takes less time all the same, a job learns to send up to 8
  /// pieces at a time, unless another size is given here: see `tuning`.
  std::size_t piece_bytes = std::size_t{32} << 10;

  /// TUTTI_ALGORITHMS: choices that replace the library's own, separated by commas:
  /// inline-shared=BYTES and inline-private=BYTES (data that travels inside the signals, by where
  /// it lies), streamed-slots=BYTES (scratch of calls from this size on is written past the
  /// caches), streamed-outputs=BYTES (the same for outputs of a node that are larger together),
  /// inputs=announced|staged|swapped|fetched and results=spread|own|fetched|updated (how large
  /// calls move data in a node: collectives/choice/README.md), paths=in-turn (each call another
  /// way, for tests), direct-outputs=BYTES (pushpull writes its outputs at once from this size on),
  /// own-sums=RANKS (each rank of a node of up to so many sums ordinary memory for itself),
  /// wait-group=RANKS, in-flight=CHUNKS, pieces=1|2|4|8 (in a message between nodes), chain=BYTES
  /// (broadcasts of this size go from node to node), halved=BYTES (sums of up to this size go by
  /// halves with the handshakes), handshakes=direct|doubling, exchange=direct|halving|mpi (between
  /// nodes; "mpi" has an order of its own). Default empty. Choices that it makes for a node, or for
  /// pieces, are not learnt.
  std::string algorithms;

  /// TUTTI_ARENA_BYTES: the most node-shared memory that one rank may use. Bytes with suffix.
  /// Default 0: twice the rank's share of the machine's memory, and at most all of it.
  std::size_t arena_bytes = 0;

  /// TUTTI_SHARED_MEMORY: the means by which the ranks of a node share memory: "memfd" (leaves
  /// nothing behind, needs no mount), "shm" (/dev/shm), "none" (every rank is a node of its own),
  /// or "auto", which takes the first that works. Default auto.
  std::string shared_memory = "auto";

  /// TUTTI_GPU_PATH: how values on GPUs are summed over the ranks: "nccl" (in a node between the
  /// GPUs, of which every rank has its own, and between nodes by the hosts), "nccl-all" (NCCL
  /// between the GPUs of all nodes), "host" (by way of the host's memory, with its order of
  /// summation), "peers" (by kernels that read each other's GPU, for jobs of one node of up to 8
  /// ranks, which may share a GPU; with the host's order), or "auto", the first that can sum:
  /// "host" where TUTTI_REPRODUCIBLE asks for its order; "nccl", or over several nodes, by a trial,
  /// the faster of that and "nccl-all"; "peers" or "host", after a warning.
  /// Where ranks share a GPU that peers cannot sum on, "auto" is an error. A node accumulates sums
  /// of 16-bit floats in float32 by way of the host and by peers; NCCL rounds them after every
  /// addition. Default auto.
  std::string gpu_path = "auto";

  /// TUTTI_VERIFY: which part of its keys' replicas and optimizer states ranks compare with every
  /// push, by digests of bytes: "off" (none), "sampled" (a 256th, in turn) or "full" (all, which
  /// reads them once more). Default sampled.
  Verify verify = Verify::sampled;

  /// TUTTI_LOG: the messages on standard error, a line each with the rank in front: "quiet"
  /// (nothing), "warning", "info" (also choices made at the start, saves and loads) or "debug"
  /// (also every collective call with its time). Errors are thrown, not logged. Default warning.
  /// Ranks may differ.
  LogLevel log = LogLevel::warning;

  /// TUTTI_STATISTICS: rank 0 writes a table of what calls cost on all ranks, in the moment of
  /// MPI_Finalize: "1" to standard error, or the name of a file. Default empty: none. Like the next
  /// two settings, it is for "dist" stores and Communicator::world(); several of them have a table
  /// each.
  std::string statistics;

  /// TUTTI_PROMETHEUS: the name of a file for Prometheus's textfile collector, such as
  /// /var/lib/node_exporter/tutti.prom. Every rank replaces one of its own (tutti.3.prom), every 10
  /// seconds in a call, and at the end. Default empty: none. Ranks may differ.
  std::string prometheus;

  /// TUTTI_TRACE: the name of a file for a trace of all ranks, written when stores are destroyed,
  /// which ui.perfetto.dev and chrome://tracing show. Default empty: none.
  std::string trace;

  /// TUTTI_TUNING: how the way of large calls through a node is chosen, and, in a job of several
  /// nodes, how much of them goes in a message (see `piece_bytes`): "learn" tries the ways in
  /// the job's own calls and keeps the fastest, "at-once" does so in the first calls of each size,
  /// whatever that costs, "static" keeps to a table, and any other value is the name of a file that
  /// `tutti-doctor --tuning FILE` wrote. No way changes a bit of a result on the CPU. Default
  /// learn: trials cost about a twentieth of the time of a size's first calls, and nothing later.
  std::string tuning = "learn";

  /// TUTTI_THREADS: threads of a rank that work on sums, updates by the library's optimizers and
  /// copies of 256 KiB and more; the program's own thread is one of them. The others are made at
  /// the first such call, sleep between calls, and take no signals. 1 makes none. The bits of
  /// results do not depend on it. 0 to 256. Default 0: the cores that the host's ranks may use,
  /// divided by their number, 1 to 8.
  int threads = 0;

  /// TUTTI_LAUNCHER: the reaction where MPI says that this is a job of one rank, and the launcher
  /// that it has started several processes: "check" makes "dist" stores and Communicator::world()
  /// throw, because the program then uses another MPI than its launcher's; "ignore" lets each be
  /// alone. Default check.
  std::string launcher = "check";

  /// TUTTI_MPI: the MPI that the job uses, of those that the library was built for: "openmpi",
  /// "mpich", "standard" (MPI 5's ABI), or the path of an MPI's library, such as
  /// /opt/mpi/lib/libmpi.so. "auto" is the one that the program has loaded; else that of the
  /// launcher that started this process; else that of the build. Default auto. Ranks may differ.
  std::string mpi = "auto";

  /// TUTTI_SNAPSHOTS: the folder of the job's snapshots (see snapshot.hpp), in a file system
  /// in memory, of the same name on every host. It outlives the ranks; whoever names it removes it,
  /// as launch.sh --snapshot-every does. Default empty: a folder in /dev/shm for each store, which
  /// goes with the store.
  std::string snapshots;

  /// TUTTI_SNAPSHOT_EVERY: how often snapshot_when_due() takes a snapshot. Seconds
  /// (fractions allowed). Default 0: never.
  std::chrono::duration<double> snapshot_every{0.0};

  /// Not a variable: the error of from_environment(), which value it could not read and what was
  /// expected. A store or communicator created with these settings throws it as invalid_argument: a
  /// "dist" store or Communicator::world() on all ranks alike, so that a job says it once.
  std::string environment_error;

  /// Reads the TUTTI_* variables of this process. A variable with the prefix that is not a setting
  /// is reported as a warning that names the nearest one. Does not throw: see environment_error.
  static Settings from_environment();

  /// Reads the settings from any set of variables; warnings are appended to `warnings_found`.
  /// Errors  invalid_argument: a value that cannot be read, with what was expected.
  static Settings from_variables(const std::map<std::string, std::string>& variables,
                                 std::vector<std::string>& warnings_found);

  /// One line per setting: variable, meaning, values, default. For --help.
  static std::string help();
};

/// The bytes that a text such as "64M", "64MiB" or "1048576" stands for. Errors: invalid_argument.
TUTTI_API std::size_t parse_bytes(const std::string& text);

}  // namespace tutti
