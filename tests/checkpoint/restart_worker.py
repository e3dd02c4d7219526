# SPDX-License-Identifier: Apache-2.0
"""The job of restart_seconds.py --python: checkpoint_worker's "restart" with torch.

    restart_worker.py DIR MIB
"""

import sys
import time


def tell(what, rank=0):
    if rank == 0:
        print(what, time.time(), flush=True)


def main():
    directory, mib = sys.argv[1], int(sys.argv[2])
    tell("main")
    import torch  # pylint: disable=import-outside-toplevel

    import tutti  # pylint: disable=import-outside-toplevel
    tell("imported")
    kv = tutti.create("dist")
    kv.set_optimizer("sgd", learning_rate=0.1, momentum=0.9)
    tell("store", kv.rank)
    gradient = torch.from_dlpack(kv.allocate((mib, 1 << 18)))
    gradient.fill_(1)
    tell("buffers", kv.rank)
    if not kv.load(directory, may_be_absent=True)["generation"]:
        kv.init("a", torch.zeros(mib, 1 << 18))
    tell("loaded", kv.rank)
    while True:
        kv.push("a", gradient)
        tell("pushed", kv.rank)
        kv.snapshot_when_due(directory)


main()
