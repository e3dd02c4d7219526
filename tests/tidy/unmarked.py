# SPDX-License-Identifier: Apache-2.0
"""Finds what a public header declares and the shared library would not export."""

import re

from cpp_text import ACCESS, code, statements, without_templates

_NOT_EXPORTED = re.compile(r"(template|using|typedef|friend|static_assert|inline|constexpr)\b")
_INLINE_END = re.compile(r"= (default|delete|0)$")
_CLASS = re.compile(r"(class|struct)\s+(\w+\s+)?(\w+)(\s+final)?\s*(:[^:].*)?$", re.DOTALL)


def _declares_function(head):
    """True for a declaration without a body that is compiled into the library."""
    head = without_templates(ACCESS.sub("", head).strip())
    name = head.split("(")[0]
    if "=" in name and "operator" not in name:
        return False  # a member with its first value
    return name != head and not _NOT_EXPORTED.match(head) and not _INLINE_END.search(head)


def _walk(text, start, end):
    for head, offset, body in statements(text, start, end):
        words = head.strip()
        offset += len(head) - len(head.lstrip())
        if body is None:
            if _declares_function(words) and "TUTTI_API" not in words:
                yield offset, words.split("(")[0].split()[-1]
        elif words.startswith(("namespace", "extern")):
            yield from _walk(text, *body)
        elif _CLASS.match(words) and "TUTTI_API" not in words:
            declared = [member for member, _, inner in statements(text, *body) if inner is None]
            if any(_declares_function(member) and "TUTTI_API" not in member
                   for member in declared):
                yield offset, _CLASS.match(words).group(3)


def unmarked(lines):
    """(line number, name) of each function that is not inline, and of each class with one."""
    text = code(lines)
    for offset, name in _walk(text, 0, len(text)):
        yield text.count("\n", 0, offset) + 1, name
