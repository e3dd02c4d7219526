# SPDX-License-Identifier: Apache-2.0
"""The parts of compare.py: the libraries, their launches, the workers in Python, and the table."""
