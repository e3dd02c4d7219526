# SPDX-License-Identifier: Apache-2.0
"""Which ranks there are: the job of mpirun, as torch.distributed wants to know it; or that of
torchrun, torch.multiprocessing.spawn and their like, whose ranks are on one host and meet through
torch's store."""

from __future__ import annotations

import atexit
import fcntl
import os
import secrets
import socket
import struct
import sys
import warnings
from typing import Any

import numpy as np
import torch.distributed as dist

from .. import Communicator, InvalidArgumentError
from .._core import is_launched, launched_for
from ._group import ProcessGroup

_SIOCGIFADDR = 0x8915  # the request for an interface's address, of the kernel's sockios.h
_world: Communicator | None = None
_deadline = ""  # where it is that of init_process_group
_store: dist.TCPStore | None = None  # of rank 0; listens as long as the process lives


def world(**settings: Any) -> Communicator:
    """All ranks of the job, on which the groups are made. Collective at the first call, whose
    settings are those of Communicator.world()."""
    global _world
    if _world is None:
        _require_launched()
        _world = Communicator.world(**settings)
        atexit.register(_world.close)
    return _world


def _meet_by(options: Any) -> None:
    """Makes the world of a job that no MPI has started, with a name that rank 0 draws and torch's
    store hands on. Collective over torch's ranks."""
    global _deadline
    rank, size = options.group_rank, options.group_size
    if size == 1 or launched_for() not in ("", "none"):
        return
    if dist.is_initialized() and dist.get_world_size() != size:
        raise InvalidArgumentError(
            f"new_group: this group of {size} is the first of the backend tutti in a job of "
            f"{dist.get_world_size()} ranks that no MPI has started; call tutti.torch.world() on "
            "all ranks before")
    # torchrun keeps its store, with what the ranks wrote before it started them again.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = dist.PrefixStore(f"tutti/{attempt}", options.store)
    _require_one_host(store, rank, size)
    if rank == 0:
        store.set("meeting", secrets.token_hex(16))
    for name, value in (("RANK", rank), ("WORLD_SIZE", size), ("LOCAL_RANK", rank),
                        ("LOCAL_WORLD_SIZE", size)):
        os.environ[name] = str(value)
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")  # these two name nothing here
    os.environ.setdefault("MASTER_PORT", "0")
    os.environ["_TUTTI_MEETING"] = store.get("meeting").decode()
    asked = getattr(options, "timeout", None)
    is_default = asked is None or asked == dist.constants.default_pg_timeout
    if asked is not None and not is_default and "TUTTI_TIMEOUT" not in os.environ:
        _deadline = f"{asked.total_seconds():g}"
    try:
        world(**({"timeout": float(_deadline)} if _deadline else {}))
    finally:
        del os.environ["_TUTTI_MEETING"]


def _require_one_host(store: Any, rank: int, size: int) -> None:
    """Raises alike on all ranks where they cannot share memory."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        system = file.read().strip()
    place = f"{system} {os.readlink('/proc/self/ns/net')}"
    store.set(f"host/{rank}", f"{place}\n{socket.gethostname()}")
    hosts: dict[str, tuple[int, str]] = {}
    for other in range(size):
        where, name = store.get(f"host/{other}").decode().split("\n")
        hosts.setdefault(where, (other, name))
    if len(hosts) > 1:
        (first, one), (second, another), *_ = hosts.values()
        raise InvalidArgumentError(
            f"the ranks of this job are on several hosts (rank {first} on {one}, rank {second} on "
            f"{another}), and without an MPI they must be on one; start the job with mpirun -np "
            f"{size} python {os.path.basename(sys.argv[0])}")


def _require_launched() -> None:
    """Raises where torch has several ranks that know nothing of each other: each would be a job of
    one rank, and train a model of its own."""
    size = os.environ.get("WORLD_SIZE", "1").strip()
    if dist.is_initialized():
        size = str(dist.get_world_size())
    if size != "1" and not is_launched():
        program = os.path.basename(sys.argv[0])
        raise InvalidArgumentError(
            f"tutti.torch: torch has {size} ranks (WORLD_SIZE), and neither an MPI's launcher nor "
            "RANK, MASTER_ADDR and MASTER_PORT say how they meet; start the job with torchrun or "
            f"mpirun -np {size} python {program}, or unset WORLD_SIZE to train alone")


def find_job() -> None:
    """Sets the variables that init_process_group reads, where they are not set. Collective."""
    if "RANK" in os.environ:
        return
    ranks = world() if is_launched() else Communicator.self()
    address = np.zeros(256, np.uint8)
    if ranks.rank == 0:
        text = _listen(ranks.num_nodes).encode()
        address[:len(text)] = np.frombuffer(text, np.uint8)
    ranks.broadcast(address, 0)
    host, port = bytes(address).rstrip(b"\0").decode().split(" ")
    found = {"RANK": ranks.rank, "WORLD_SIZE": ranks.size, "LOCAL_RANK": ranks.local_rank,
             "LOCAL_WORLD_SIZE": ranks.local_size, "MASTER_ADDR": host, "MASTER_PORT": port}
    for name, value in found.items():
        os.environ.setdefault(name, str(value))


def _listen(nodes: int) -> str:
    """Where torch's store of rank 0 listens, as "host port". It does so from now on, so that no
    other program can take the port: init_process_group finds the store of this process by it."""
    global _store
    port = os.environ.get("MASTER_PORT")  # then torch makes the store
    if port is None:
        _store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False,
                               multi_tenant=True)
        port = str(_store.port)
    return f"{_own_address() if nodes > 1 else '127.0.0.1'} {port}"


def _own_address() -> str:
    """This host, as others reach it: what its name means, or where packets would leave, or an
    interface that is not the loopback."""
    try:
        found = socket.gethostbyname(socket.gethostname())
        if not found.startswith("127."):
            return found
    except OSError:
        pass
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 1))  # sends nothing
            return str(probe.getsockname()[0])
        except OSError:
            pass
        for _, name in socket.if_nameindex():
            try:
                asked = struct.pack("256s", name.encode())
                found = socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, asked)[20:24])
            except OSError:
                continue  # it has no address
            if not found.startswith("127."):
                return found
    return socket.gethostname()


def _warn_of_timeout(asked: Any, rank: int) -> None:
    """Waits of all groups have the job's deadline, which is set before the ranks meet."""
    if rank != 0 or asked is None or asked == dist.constants.default_pg_timeout:
        return
    wanted = f"{asked.total_seconds():g}"
    waited = _deadline or os.environ.get("TUTTI_TIMEOUT") or "300"
    if wanted != waited:
        warnings.warn(f"a group's timeout of {wanted} s has no effect: waits end after {waited} s; "
                      f"start the job with mpirun -x TUTTI_TIMEOUT={wanted}", stacklevel=4)


def create_group(options: Any, _: Any) -> ProcessGroup:
    """What init_process_group and new_group call: collective over the group's ranks."""
    if _world is None:
        _meet_by(options)
    everyone = world()
    _warn_of_timeout(getattr(options, "timeout", None), options.group_rank)
    members = list(options.global_ranks_in_group) or list(range(options.group_size))
    if len(members) > everyone.size or not options.group_rank < len(members):
        raise InvalidArgumentError(
            f"init_process_group: torch was told of {options.group_size} ranks, and the job has "
            f"{everyone.size}; start the program with mpirun, and leave RANK and WORLD_SIZE unset")
    if members[options.group_rank] != everyone.rank:
        raise InvalidArgumentError(
            f"init_process_group: torch was told that this is rank {members[options.group_rank]}, "
            f"and it is rank {everyone.rank} of the job; leave RANK and WORLD_SIZE unset")
    group = everyone.create_group(members)
    name = np.frombuffer(secrets.token_bytes(8), np.uint8).copy()
    group.broadcast(name, 0)  # torch gives a later group the name of an earlier one in this store
    return ProcessGroup(group, dist.PrefixStore(f"tutti/{name.tobytes().hex()}", options.store))
