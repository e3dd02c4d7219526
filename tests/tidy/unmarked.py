# SPDX-License-Identifier: Apache-2.0
"""Finds what a public header declares and the shared library would not export.

Reads headers as they are laid out here; not a parser of all of C++.
"""

import re

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(r"^\s*#[^\n]*", re.MULTILINE)
_NOT_EXPORTED = re.compile(r"(template|using|typedef|friend|static_assert|inline|constexpr)\b")
_INLINE_END = re.compile(r"= (default|delete|0)$")
_CLASS = re.compile(r"(class|struct)\s+(\w+\s+)?(\w+)(\s+final)?\s*(:[^:].*)?$", re.DOTALL)
_ACCESS = re.compile(r"^(\s*(public|private|protected)\s*:)+")


def _blank(text, pattern):
    """Spaces for what matches, so that lines keep their numbers."""
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def _statements(text, start, end):
    """(head, its offset, body) for each statement; body: the span between its braces, or None."""
    begin, position, parentheses = start, start, 0
    while position < end:
        letter = text[position]
        parentheses += {"(": 1, ")": -1}.get(letter, 0)
        if letter == ";" and not parentheses:
            yield text[begin:position], begin, None
            begin = position + 1
        elif letter == "{":
            close = _closing(text, position)
            if not parentheses:
                yield text[begin:position], begin, (position + 1, close)
                begin = close + 1
            position = close
        position += 1


def _closing(text, opening):
    depth = 0
    for position in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return position
    return len(text)


def _declares_function(head):
    """True for a declaration without a body that is compiled into the library."""
    head = _ACCESS.sub("", head).strip()
    while re.search(r"<[^<>]*>", head):
        head = re.sub(r"<[^<>]*>", "", head)
    name = head.split("(")[0]
    if "=" in name and "operator" not in name:
        return False  # a member with its first value
    return name != head and not _NOT_EXPORTED.match(head) and not _INLINE_END.search(head)


def _walk(text, start, end):
    for head, offset, body in _statements(text, start, end):
        words = head.strip()
        offset += len(head) - len(head.lstrip())
        if body is None:
            if _declares_function(words) and "TUTTI_API" not in words:
                yield offset, words.split("(")[0].split()[-1]
        elif words.startswith(("namespace", "extern")):
            yield from _walk(text, *body)
        elif _CLASS.match(words) and "TUTTI_API" not in words:
            declared = [member for member, _, inner in _statements(text, *body) if inner is None]
            if any(_declares_function(member) and "TUTTI_API" not in member
                   for member in declared):
                yield offset, _CLASS.match(words).group(3)


def unmarked(lines):
    """(line number, name) of each function that is not inline, and of each class with one."""
    text = _blank(_blank("\n".join(lines), _COMMENTS), _DIRECTIVE)
    for offset, name in _walk(text, 0, len(text)):
        yield text.count("\n", 0, offset) + 1, name
