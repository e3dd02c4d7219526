# SPDX-License-Identifier: Apache-2.0
"""Stands in for matplotlib where it is not installed: a picture is the words that it would show."""

rcParams = {}


def use(name):
    assert name == "svg"
