# SPDX-License-Identifier: Apache-2.0
"""edge_worker.cpp in Python: edge_worker.py store|async [WAY one|all]."""

import os
import signal
import sys
import threading

import numpy as np

import tutti

STEPS = 5
VALUE = np.ones(100_000, np.float32)


def work(kv, kind):
    for _ in range(STEPS):
        if kind == "async":
            kv.push_async("a", VALUE).wait()
        else:
            kv.push("a", VALUE)
    total = np.zeros_like(VALUE)
    kv.pull("a", total)
    if not (total == kv.num_workers).all():
        raise RuntimeError("a wrong sum")


def throw(error):
    raise error


def in_thread(body):
    threading.Thread(target=body).start()
    threading.Event().wait()


WAYS = {
    "return": lambda: None,
    "return_3": lambda: sys.exit(3),
    "exit": lambda: sys.exit(0),
    "_exit": lambda: os._exit(0),
    "exec": lambda: os.execv("/bin/true", ["true"]),
    "abort": os.abort,
    "throw": lambda: throw(RuntimeError("thrown in the program")),
    "sigterm": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "sigint": lambda: os.kill(os.getpid(), signal.SIGINT),
    "sigsegv": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "sigkill": lambda: os.kill(os.getpid(), signal.SIGKILL),
}


def main(kind, way=None, who=None):
    kv = tutti.create("dist")
    kv.init("a", VALUE)
    work(kv, kind)
    if way is None:
        if kv.rank == 0:
            print("right", flush=True)
        return
    if who == "all" or kv.rank == kv.num_workers - 1:
        print("ends", flush=True)
        WAYS[way]()
        return
    work(kv, kind)


main(*sys.argv[1:])
