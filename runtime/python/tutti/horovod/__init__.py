# SPDX-License-Identifier: Apache-2.0
"""Horovod's names, for programs that were written for it: import tutti.horovod.torch as hvd."""
