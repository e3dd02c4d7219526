# SPDX-License-Identifier: Apache-2.0
"""Takes C++ apart into statements, as it is laid out here; not a parser of all of C++."""

import re

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DIRECTIVE = re.compile(r"^\s*#[^\n]*", re.MULTILINE)
ACCESS = re.compile(r"^(\s*(public|private|protected)\s*:)+")


def code(lines):
    """The text of these lines, with spaces for comments and directives."""
    return _blank(_blank("\n".join(lines), _COMMENTS), _DIRECTIVE)


def _blank(text, pattern):
    """Spaces for what matches, so that lines keep their numbers."""
    return pattern.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def statements(text, start, end):
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


def without_templates(head):
    """A head without what stands between angle brackets."""
    while re.search(r"<[^<>]*>", head):
        head = re.sub(r"<[^<>]*>", "", head)
    return head
