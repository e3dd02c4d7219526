# SPDX-License-Identifier: Apache-2.0
"""The classes of a file with their numbers of methods, and the classes whose methods it defines.

Names are without namespaces: "KVStore::Impl".
"""

import re

from cpp_text import ACCESS, code, statements, without_templates

_NAMESPACE = re.compile(r"(inline\s+)?(namespace|extern)\b")
_CLASS = re.compile(r"(class|struct)\s+(?:\w+\s+|alignas\([^)]*\)\s+)*?(\w+(::\w+)*)(\s+final)?"
                    r"\s*(:[^:].*)?$", re.DOTALL)
_NO_METHOD = re.compile(r"(using|typedef|friend|static_assert|enum|class|struct|union)\b")


def _head(text):
    """A statement's head without access labels and templates."""
    return re.sub(r"^template\s*", "", without_templates(ACCESS.sub("", text).strip()))


def _is_method(text):
    head = _head(text)
    name = head.split("(")[0]
    if name == head or _NO_METHOD.match(head):
        return False
    return "=" not in name or "operator" in name  # else a member with its first value


def _classes(text, start, end, outer):
    for head, offset, body in statements(text, start, end):
        if body is None:
            continue
        words = _head(head)
        found = _CLASS.match(words)
        if _NAMESPACE.match(words):
            yield from _classes(text, *body, outer)
        elif found:
            name = outer + found.group(2)
            offset += len(head) - len(head.lstrip())
            yield offset, name, sum(_is_method(inner) for inner, _, _ in statements(text, *body))
            yield from _classes(text, *body, name + "::")


def classes(lines):
    """(line number, name, number of methods) of each class."""
    text = code(lines)
    for offset, name, methods in _classes(text, 0, len(text), ""):
        yield text.count("\n", 0, offset) + 1, name, methods


def _definitions(text, start, end):
    for head, offset, body in statements(text, start, end):
        if body is None:
            continue
        words = _head(head)
        if _NAMESPACE.match(words):
            yield from _definitions(text, *body)
            continue
        name = words.split("(")[0].split()
        if name and "::" in name[-1]:
            yield offset + len(head) - len(head.lstrip()), name[-1].lstrip("&*").rpartition("::")[0]


def definitions(lines):
    """(line number, qualified class) of each method that is defined outside of its class."""
    text = code(lines)
    for offset, name in _definitions(text, 0, len(text)):
        yield text.count("\n", 0, offset) + 1, name
