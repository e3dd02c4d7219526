# SPDX-License-Identifier: Apache-2.0
"""Times one library from Python as collective-benchmark times Tutti, and writes the same JSON.

    python worker.py --library gloo|deepspeed|oneccl --ranks 2 --json FILE ...

It starts its own ranks on this host. A call runs on each rank from a common barrier on, the longest
p50 over the ranks counts, inputs are written right before each call (fresh) or once (hot), and the
last result of a size is checked. Times and the barrier lie in a file that all ranks map.
"""

import argparse
import ctypes
import datetime
import json
import mmap
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time

# numpy and the libraries' packages are imported where they are used: they are in the environment of
# one library each.

KIB = 1024
REDUCING = ("allreduce", "reduce", "reduce_scatter")
BUDGET_S = 0.25  # per size, as collective-benchmark without -n


def size_of(text):
    factor = {"K": KIB, "M": KIB ** 2, "G": KIB ** 3}.get(text.rstrip("iB")[-1:].upper(), 1)
    return int(float(text.rstrip("iB").rstrip("KMGkmg")) * factor)


class Meeting:
    """A barrier, and one number of each rank for the others, in memory that all ranks map."""

    def __init__(self, path, rank, ranks):
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), ranks * 2 * 128)
        self._mine, self._ranks, self._count = rank, ranks, 0
        # A line of 128 bytes each, so that ranks that write do not disturb each other.
        self._arrived = [ctypes.c_uint64.from_buffer(self._map, 256 * r) for r in range(ranks)]
        self._told = [ctypes.c_double.from_buffer(self._map, 256 * r + 128) for r in range(ranks)]

    def barrier(self, patience_s=120):
        self._count += 1
        self._arrived[self._mine].value = self._count
        turns, end = 0, None
        for other in self._arrived:
            while other.value < self._count:
                turns += 1
                if turns % 2000 == 0:  # where there are more ranks than cores
                    time.sleep(0)
                    end = end or time.monotonic() + patience_s
                    if time.monotonic() > end:
                        raise TimeoutError("a rank has not come to the barrier")

    def longest(self, value):
        self._told[self._mine].value = value
        self.barrier()
        worst = max(told.value for told in self._told)
        self.barrier()
        return worst


class Torch:
    """torch.distributed over gloo; tensors are ordinary memory."""

    def __init__(self, rank, ranks, folder):
        import torch
        import torch.distributed as dist
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank,
                                world_size=ranks)
        self.torch, self.dist, self.rank, self.ranks = torch, dist, rank, ranks
        self.version = f"gloo of torch {torch.__version__}"

    def array(self, count):
        return self.torch.zeros(count)

    @staticmethod
    def fill(array, value):
        array.fill_(value)

    def end(self):
        """Nothing: the process ends."""

    def call(self, collective, given, out):
        """The call as a function without arguments; allreduce, reduce and broadcast in place."""
        dist, parts = self.dist, lambda array: list(array.chunk(self.ranks))
        root = self.rank == 0
        return {"allreduce": lambda: dist.all_reduce(given),
                "reduce": lambda: dist.reduce(given, 0),
                "broadcast": lambda: dist.broadcast(given, 0),
                "allgather": lambda: dist.all_gather_into_tensor(out, given),
                "reduce_scatter": lambda: dist.reduce_scatter_tensor(out, given),
                "alltoall": lambda: dist.all_to_all_single(out, given),
                "gather": lambda: dist.gather(given, parts(out) if root else None, 0),
                "scatter": lambda: dist.scatter(out, parts(given) if root else None, 0),
                }[collective]


class DeepSpeed(Torch):
    """DeepSpeed's operation on shared memory, which it compiles at the first use."""

    def __init__(self, rank, ranks, folder):
        super().__init__(rank, ranks, folder)
        os.environ.update(LOCAL_SIZE=str(ranks), LOCAL_RANK=str(rank), RANK=str(rank),
                          WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT="29501")
        import deepspeed
        from deepspeed.comm.torch import build_shm_op
        module = build_shm_op()
        if module is None:
            raise RuntimeError("DeepSpeed has no shared-memory operation for this processor")
        module.initialize(ranks, rank)
        self.version = f"DeepSpeed {deepspeed.__version__}"

    def call(self, collective, given, out):
        operation = self.torch.ops.deepspeed.inference_all_reduce_
        return lambda: operation(given)


class OneCcl:
    """oneCCL's collectives on the CPU, through the shim that --install compiles."""

    def __init__(self, rank, ranks, folder):
        import numpy
        self.numpy, self.ranks = numpy, ranks
        shim = ctypes.CDLL(os.environ["CCL_ROOT"] + "/lib/liboneccl_shim.so")
        shim.shim_version.restype = ctypes.c_char_p
        address = ctypes.create_string_buffer(256)
        if rank == 0:
            shim.shim_address(address)
            with open(f"{folder}/address.part", "wb") as file:
                file.write(address.raw)
            os.rename(f"{folder}/address.part", f"{folder}/address")
        while not os.path.exists(f"{folder}/address"):
            time.sleep(0.01)
        with open(f"{folder}/address", "rb") as file:
            shim.shim_begin(rank, ranks, file.read())
        self.shim, self.version = shim, "oneCCL " + shim.shim_version().decode()

    def array(self, count):
        return self.numpy.zeros(count, "float32")

    @staticmethod
    def fill(array, value):
        array.fill(value)

    def end(self):
        self.shim.shim_end()

    def call(self, collective, given, out):
        run = getattr(self.shim, "shim_" + collective)
        out = given if out is None else out
        count = {"allgather": len(given), "reduce_scatter": len(out),
                 "alltoall": len(given) // self.ranks}.get(collective, len(given))
        words = (ctypes.c_void_p(given.ctypes.data), ctypes.c_void_p(out.ctypes.data),
                 ctypes.c_size_t(count))
        return lambda: run(*words)


LIBRARIES = {"gloo": Torch, "deepspeed": DeepSpeed, "oneccl": OneCcl}


def shape(collective, count, rank, ranks):
    """Elements of (the input, the output): the larger is `count`. No output: in place."""
    whole = count // ranks * ranks
    return {"allgather": (whole // ranks, whole), "reduce_scatter": (whole, whole // ranks),
            "alltoall": (whole, whole), "gather": (whole // ranks, whole if rank == 0 else 0),
            "scatter": (whole if rank == 0 else 0, whole // ranks)}.get(collective, (count, None))


def expected(collective, value, rank, ranks):
    """The elements of the result, the k-th of equal blocks. Rank r puts in value + r."""
    if collective in REDUCING:
        return [value * ranks + ranks * (ranks - 1) // 2]
    if collective in ("allgather", "alltoall", "gather"):
        return [value + other for other in range(ranks)]
    return [value]


def count_wrong(result, blocks):
    length = len(result) // len(blocks)
    return sum(int((result[i * length:(i + 1) * length] != block).sum())
               for i, block in enumerate(blocks))


class Measurement:
    def __init__(self, library, meeting, words, rank):
        self.library, self.meeting, self.words, self.rank = library, meeting, words, rank

    def size(self, size):
        words, library = self.words, self.library
        count = size // 4
        inputs, outputs = shape(words.collective, count, self.rank, words.ranks)
        if (count // words.ranks if outputs is not None else count) == 0:
            return None
        given = library.array(inputs)
        out = None if outputs is None else library.array(outputs)
        call = library.call(words.collective, given, out)
        trial = self._times(call, given, 5 + words.warmups)[0]
        number = words.iterations or max(5, min(2000, int(BUDGET_S / max(trial, 1e-7))))
        times, value = self._times(call, given, int(self.meeting.longest(number)))[1:]
        wrong = self._wrong(given if out is None else out, value)
        p50 = self.meeting.longest(statistics.median_low(times) * 1e6)
        return {"collective": words.collective, "backend": words.library, "buffers": "user",
                "in_place": False, "bytes": size, "count": count, "type": "float32",
                "redop": "sum" if words.collective in REDUCING else "none", "root": 0,
                "iterations": len(times), "time_us": {"p50": p50}, "wrong": wrong}

    def _times(self, call, given, number):
        """The mean of all, each by itself, and the value that the last call began with."""
        times, value = [], 1
        # In place a call changes its input, which is then written again, outside of the time.
        writes = self.words.cache == "fresh" or self.words.collective in ("allreduce", "reduce")
        for i in range(number):
            if writes or i == 0:
                value = 1 + i % 2
                self.library.fill(given, value + self.rank)
            self.meeting.barrier()
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
        return sum(times) / len(times), times, value

    def _wrong(self, result, value):
        if self.words.collective in ("reduce", "gather") and self.rank != 0:
            wrong = 0
        else:
            wrong = count_wrong(result, expected(self.words.collective, value, self.rank,
                                                 self.words.ranks))
        return int(self.meeting.longest(wrong))


def sizes(words):
    size = words.minbytes
    while size <= words.maxbytes:
        yield size
        size *= words.stepfactor


def environment(words, version, started):
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return {"started": started, "ranks": words.ranks, "nodes": 1, "mpi": version,
            "hosts": [{"name": socket.gethostname(), "ranks": words.ranks}],
            "processor": names[0] if names else platform.machine()}


def run_rank(words):
    rank = words.rank if words.rank >= 0 else int(os.environ["PMI_RANK"])
    meeting = Meeting(f"{words.folder}/meeting", rank, words.ranks)
    library = LIBRARIES[words.library](rank, words.ranks, words.folder)
    started = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    measurement = Measurement(library, meeting, words, rank)
    results = [found for size in sizes(words) if (found := measurement.size(size))]
    meeting.barrier()
    if rank == 0:
        config = {"label": words.label, "collective": words.collective, "type": "float32",
                  "cache": words.cache, "model": None, "compression": None, "device": "cpu",
                  "iterations": words.iterations, "warmup_iterations": words.warmups,
                  "calls_per_iteration": 1, "check": True, "ranks_per_node": []}
        with open(words.json, "w", encoding="utf-8") as file:
            json.dump({"config": config, "results": results,
                       "environment": environment(words, library.version, started)}, file)
    library.end()
    os._exit(0)  # a library's threads may wait for other ranks that have gone


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", choices=LIBRARIES, required=True)
    parser.add_argument("--label", required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--collective", default="allreduce")
    parser.add_argument("--cache", choices=("fresh", "hot"), default="fresh")
    parser.add_argument("-b", "--minbytes", type=size_of, default=8)
    parser.add_argument("-e", "--maxbytes", type=size_of, default=128 * KIB ** 2)
    parser.add_argument("-f", "--stepfactor", type=int, default=2)
    parser.add_argument("-n", "--iters", dest="iterations", type=int)
    parser.add_argument("-w", "--warmup_iters", dest="warmups", type=int, default=5)
    parser.add_argument("--json", required=True)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    words = parse()
    if words.rank is not None:
        run_rank(words)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        with open(f"{folder}/meeting", "wb") as file:
            file.write(bytes(words.ranks * 256))
        own = [sys.executable, *sys.argv, "--folder", folder, "--rank"]
        if words.library == "oneccl":  # it shares memory among ranks of an MPI alone
            commands = [["mpiexec", "-n", str(words.ranks), *own, "-1"]]
        else:
            commands = [[*own, str(rank)] for rank in range(words.ranks)]
        started = [subprocess.Popen(command) for command in commands]
        code = 0
        while any(each.poll() is None for each in started) and code == 0:
            time.sleep(0.05)
            code = next((each.returncode for each in started if each.returncode), 0)
        for each in started:
            each.terminate()  # mpiexec ends its ranks
            each.wait()
    return code or next((each.returncode for each in started if each.returncode), 0)


if __name__ == "__main__":
    sys.exit(main())
