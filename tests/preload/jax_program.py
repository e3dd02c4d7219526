# SPDX-License-Identifier: Apache-2.0
"""JAX's compiled functions with mpi4jax's collectives, compared with numpy.

    mpirun -np 2 python jax_program.py

It knows MPI alone: run it as it is and with the preloaded library. Every rank knows the
others' data from their seed. Rank 0 prints "N cases, 0 wrong"; the exit status is 1 if a rank saw a
wrong result.
"""

import sys

import jax
import mpi4jax
import numpy as np
from mpi4py import MPI

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)

WORLD = MPI.COMM_WORLD
RANK, RANKS = WORLD.rank, WORLD.size
ELEMENTS = (1, 77, 1 << 18)  # up to 1 MiB of float32
DTYPES = ("float32", "float64", "int32")


def data_of(rank, shape, dtype):
    random = np.random.default_rng([rank, *shape])
    if dtype == "int32":
        return random.integers(-1000, 1000, shape, dtype)
    return random.standard_normal(shape).astype(dtype)


def cases(elements, dtype):
    """(name, function to compile, its argument, what it must return) for one size and datatype."""
    last = RANKS - 1
    each = np.stack([data_of(rank, (elements,), dtype) for rank in range(RANKS)])
    rows = np.stack([data_of(rank, (RANKS, elements), dtype) for rank in range(RANKS)])
    own, total = each[RANK], each.sum(axis=0, dtype=dtype)

    def total_of(x):
        return mpi4jax.allreduce(x, op=MPI.SUM)

    def between_barriers(x):
        mpi4jax.barrier()
        x = 2 * total_of(x) - x
        mpi4jax.barrier()
        return x

    yield "sum", total_of, own, total
    yield "sum between barriers", between_barriers, own, 2 * total - own
    yield "max", lambda x: mpi4jax.allreduce(x, op=MPI.MAX), own, each.max(axis=0)
    yield "bcast", lambda x: mpi4jax.bcast(x, root=last), own, each[last]
    yield "allgather", mpi4jax.allgather, own, each
    yield "alltoall", mpi4jax.alltoall, rows[RANK], rows[:, RANK]
    yield ("scatter", lambda x: mpi4jax.scatter(x, root=0), rows[0] if RANK == 0 else rows[0][RANK],
           rows[0][RANK])
    # Ranks that are not the root get from mpi4jax what they gave.
    yield ("gather", lambda x: mpi4jax.gather(x, root=last), own, each if RANK == last else own)
    yield ("sum on a root", lambda x: mpi4jax.reduce(x, op=MPI.SUM, root=0), own,
           total if RANK == 0 else own)
    if dtype != "int32":
        # mpi4jax's convention: what comes back through a sum is the rank's own part.
        yield "sum's gradient", jax.grad(lambda x: total_of(x * x) @ own), own, 2 * own * own
        yield ("sum's derivative", lambda x: jax.jvp(lambda y: total_of(y * y), (x,), (x,))[1], own,
               2 * (each * each).sum(axis=0, dtype=dtype))


def is_right(name, result, expected):
    """Sums of floating-point numbers may differ from numpy's in their last bits, nothing else."""
    result = np.asarray(result)
    if result.dtype != expected.dtype or result.shape != expected.shape:
        return False
    if not name.startswith("sum") or expected.dtype.kind == "i":
        return np.array_equal(result, expected)
    bound = 8 * RANKS * np.finfo(expected.dtype).eps * max(1, np.abs(expected).max())
    return np.abs(result - expected).max() <= bound


def main():
    count, wrong = 0, 0
    for elements in ELEMENTS:
        for dtype in DTYPES:
            for name, function, argument, expected in cases(elements, dtype):
                compiled = jax.jit(function)
                for again in range(2):
                    count += 1
                    if not is_right(name, compiled(argument), expected):
                        wrong += 1
                        print(f"rank {RANK}: {name}, {elements} {dtype}, call {again}: wrong")
    wrong = WORLD.allreduce(wrong)
    if RANK == 0:
        print(f"{count} cases, {wrong} wrong")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
