# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that run in a job of torch.distributed. Where torch is not installed, these
tests are skipped, and nothing here imports it."""

import pytest


@pytest.fixture
def rank():
    from torch.distributed import get_rank
    return get_rank()


@pytest.fixture
def ranks():
    from torch.distributed import get_world_size
    return get_world_size()
