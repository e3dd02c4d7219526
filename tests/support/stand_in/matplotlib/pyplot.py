# SPDX-License-Identifier: Apache-2.0
"""The calls of pyplot that plot.py makes."""

from unittest.mock import MagicMock
from xml.sax.saxutils import escape


class Axes(MagicMock):
    def words(self):
        for name, arguments, named in self.mock_calls:
            if name in ("set_title", "set_xlabel", "text"):
                yield f"<text>{escape(str(arguments[0 if name != 'text' else 2]))}</text>"
            if name == "plot":
                assert all(y == y and y > 0 for y in arguments[1])
                yield f'<g id="{named["gid"]}"/>'
            if name == "barh":
                yield from (f'<g id="{escape(text)}"/>' for text in arguments[0])


class Figure:
    def __init__(self, axes):
        self.axes, self.title = axes, ""

    def suptitle(self, text, **_):
        self.title = text

    def savefig(self, path, **_):
        lines = [f"<text>{escape(line)}</text>" for line in self.title.splitlines()]
        for each in self.axes:
            lines += each.words()
        with open(path, "w", encoding="utf-8") as file:
            file.write("<svg>" + "\n".join(lines) + "</svg>\n")


def subplots(rows, columns, **_):
    axes = [Axes() for _ in range(rows * columns)]
    grid = MagicMock()
    grid.flat = axes
    return Figure(axes), grid
