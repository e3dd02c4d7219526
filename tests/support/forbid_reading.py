#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Starts a program that may not read other processes: process_vm_readv ends with EPERM for it.

    forbid_reading.py PROGRAM ARGUMENTS...

A seccomp filter does it, as that of a container would, and for root, too. Exit code 77 where none
can be installed.
"""

import ctypes
import os
import platform
import struct
import sys

SKIPPED = 77
PROCESS_VM_READV = {"x86_64": 310, "aarch64": 270}
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # of classic BPF, on words
ALLOW, EPERM = 0x7FFF0000, 0x00050001


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def instructions(call):
    """`code, jump if true, jump if false, operand` of each; word 0 is the number of the call."""
    steps = [(LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 0, 1, call), (RETURN, 0, 0, EPERM),
             (RETURN, 0, 0, ALLOW)]
    return b"".join(struct.pack("HBBI", *step) for step in steps), len(steps)


def forbid():
    """True if the filter is in place."""
    if platform.machine() not in PROCESS_VM_READV:
        return False
    code, length = instructions(PROCESS_VM_READV[platform.machine()])
    program = Program(length, code)
    libc = ctypes.CDLL(None, use_errno=True)
    return (libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            and libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0) == 0)


if not forbid():
    print(f"no seccomp filter here ({platform.machine()})", file=sys.stderr)
    sys.exit(SKIPPED)
os.execvp(sys.argv[1], sys.argv[1:])
