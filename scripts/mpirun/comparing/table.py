# SPDX-License-Identifier: Apache-2.0
"""Several launches of collective-benchmark as one table: Tutti beside the best of other libraries.

An MPI reads its configuration when it starts, so that each configuration needs launches of its own.
Machines drift, so that the launches take turns, in rounds. A time is the median over launches:
Tutti's over all of them, another library's over those of one configuration. The best configuration
of a size has the smallest of these medians. A launch of an MPI times Tutti and MPI in turn, so that
a ratio is made of neighbours: of one launch, and then the median over those of the configuration.
Where launches have no times of Tutti (gloo, DeepSpeed, oneCCL), a ratio is that of the medians.
"""

import json
import math
from statistics import median

BANDS = (("up to 1 KiB", 0, 1 << 10), ("above 1 KiB, up to 2 MiB", 1 << 10, 2 << 20),
         ("above 2 MiB, below 32 MiB", 2 << 20, (32 << 20) - 1),
         ("32 MiB and more", (32 << 20) - 1, math.inf), ("all sizes", 0, math.inf))
# Conditions that must be alike in all launches that are compared.
OF_CONFIG = ("collective", "type", "cache", "model", "compression", "device", "iterations",
             "warmup_iterations", "calls_per_iteration", "check", "ranks_per_node")
OF_ENVIRONMENT = ("ranks", "nodes", "processor")
# Conditions that must be alike in the launches that measure Tutti.
OF_TUTTI = ("library", "vector_instructions", "algorithms", "tuning")
BUFFERS = {"store_us": "store", "user_us": "user"}


class Refused(Exception):
    """The launches cannot become a table; the text says why."""


def bytes_text(number):
    """8 B, 2 KiB, 1.5 MiB, as collective-benchmark writes them."""
    power = min((int(number).bit_length() - 1) // 10, 4) if number >= 1 else 0
    scaled = number / 1024 ** power
    whole = abs(scaled - round(scaled)) < 0.05
    return f"{scaled:.{0 if whole else 1}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def time_text(microseconds):
    return f"{microseconds:.{2 if microseconds < 100 else 1 if microseconds < 10000 else 0}f}"


def text_of(value):
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)


class Launch:
    """One --json file of collective-benchmark, or of a worker of this folder."""

    def __init__(self, text):
        try:
            whole = json.loads(text)
            self._read(whole["config"], whole["environment"], whole["results"])
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise Refused("not the --json of collective-benchmark: "
                          f"{type(error).__name__}: {error}") from error

    def _read(self, config, environment, results):
        self.configuration = config["label"]
        if not isinstance(self.configuration, str):
            raise Refused("the run has no name: expected one that was made with --label")
        self.started = environment["started"]
        self.times = {}  # (bytes, "store", "user" or "other"): microseconds
        self.wrong, self.checked = 0, True
        for result in results:
            self._add(result)
        self.has_tutti = any(kind != "other" for _, kind in self.times)
        self.conditions = self._conditions(config, environment, results)
        self.version = environment["mpi"]

    def _add(self, result):
        if result["backend"] == "nccl":
            return  # it sums on GPUs, beside which an MPI's time says nothing
        kind = result["buffers"] if result["backend"] == "tutti" else "other"
        p50 = result["time_us"]["p50"]
        if not p50 > 0:
            raise Refused(f"a p50 of {result['bytes']} B: expected a time above 0, found {p50}")
        self.times[result["bytes"], kind] = p50
        self.checked &= result["wrong"] is not None
        self.wrong += result["wrong"] or 0

    def _conditions(self, config, environment, results):
        first = results[0]
        # A collective that only moves elements has no operation, whatever the command line says.
        found = {"redop": first["redop"], "root": first.get("root", 0),
                 "in_place": first.get("in_place", False)}
        for name in ("type", "redop", "root", "in_place"):
            if any(result.get(name) != first.get(name) for result in results):
                raise Refused(f"the run has results of more than one {name}: expected one "
                              "--datatype, --op, --root and --place")
        found |= {name: config.get(name, 1 if name == "calls_per_iteration" else None)
                  for name in OF_CONFIG}
        found |= {name: environment[name] for name in OF_ENVIRONMENT}
        if self.has_tutti:
            found |= {name: environment.get(name) for name in OF_TUTTI}
        found["hosts"] = ", ".join(f"{host['name']} ({host['ranks']})"
                                   for host in environment["hosts"])
        if self.has_tutti:  # whose benchmark asks the kernel
            found["last-level cache"] = bytes_text(environment["last_level_cache_bytes"])
        return {name: text_of(value) for name, value in found.items()}


def require_alike(first, other):
    conditions = first.conditions
    if first.configuration == other.configuration:
        conditions = {**conditions, "mpi": first.version}
    for name, text in conditions.items():
        found = other.version if name == "mpi" else other.conditions.get(name, text)
        if text != found:
            raise Refused(f"launches that differ cannot be compared: {name} is {text} in "
                          f"{first.configuration} ({first.started}) and {found} in "
                          f"{other.configuration} ({other.started})")


class Comparison:
    """All launches as one: `lines` by size, the `means` of their ratios, what is `missing`."""

    def __init__(self, launches, missing=(), notes=()):
        if not launches:
            raise Refused("--results: expected at least one file")
        # The conditions of a launch with Tutti's times: it has all of them.
        first = next((launch for launch in launches if launch.has_tutti), launches[0])
        for launch in launches:
            require_alike(first, launch)
            require_alike(next(each for each in launches
                               if each.configuration == launch.configuration), launch)
        self.conditions = first.conditions
        self.started = min(launch.started for launch in launches)
        self.wrong = sum(launch.wrong for launch in launches)
        self.checked = all(launch.checked for launch in launches)
        self.notes = list(notes)
        self.launches = {}  # in the order of the first launch of each configuration
        for launch in launches:
            self.launches.setdefault(launch.configuration, []).append(launch)
        sizes = sorted({size for launch in launches for size, _ in launch.times})
        if not sizes:
            raise Refused("--results: no file has a result of Tutti or of another library")
        self.lines = [self._line(launches, size) for size in sizes]
        self.missing = [*missing, *self._gaps(launches, sizes)]

    def _line(self, launches, size):
        line = {"bytes": size}
        for name, kind in BUFFERS.items():
            line[name] = median_of(launch.times.get((size, kind)) for launch in launches)
        line["other_us"], line["ratios"] = {}, {}
        for name, own in self.launches.items():
            other = median_of(launch.times.get((size, "other")) for launch in own)
            if other is not None:
                line["other_us"][name] = other
                line["ratios"][name] = {kind: self._ratio(own, size, kind, other, line[column])
                                        for column, kind in BUFFERS.items()}
        line["best"] = min(line["other_us"], key=line["other_us"].get, default=None)
        for kind in BUFFERS.values():
            line[f"{kind}_ratio"] = line["ratios"].get(line["best"], {}).get(kind)
        return line

    @staticmethod
    def _ratio(own, size, kind, other, tutti):
        """How many times longer the other library takes than Tutti."""
        pairs = [(launch.times[size, "other"], launch.times[size, kind]) for launch in own
                 if (size, "other") in launch.times and (size, kind) in launch.times]
        if pairs:
            return median(there / here for there, here in pairs)
        has_tutti = any(launch.has_tutti for launch in own)
        return None if tutti is None or has_tutti else other / tutti

    def _gaps(self, launches, sizes):
        """A launch that lacks a size that others have: the table would not show it."""
        with_tutti = [launch for launch in launches if launch.has_tutti]
        wanted = [(name, "other", own) for name, own in self.launches.items()]
        wanted += [("Tutti in the store's memory", "store", with_tutti),
                   ("Tutti in ordinary memory", "user", with_tutti)]
        for who, kind, own in wanted:
            for size in sizes:
                there = sum((size, kind) in launch.times for launch in own)
                if there != len(own):
                    yield f"{who} at {bytes_text(size)}: {there} of {len(own)} results"

    def means(self):
        """(name of a band of sizes, {"store": ..., "user": ...}): geometric means of the ratios."""
        for name, above, up_to in BANDS:
            found = {}
            for kind in BUFFERS.values():
                ratios = [line[f"{kind}_ratio"] for line in self.lines
                          if above < line["bytes"] <= up_to and line[f"{kind}_ratio"]]
                found[kind] = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
            yield name, found


def median_of(values):
    there = [value for value in values if value is not None]
    return median(there) if there else None


# --- what is written -----------------------------------------------------------------------------

HEAD = ("size", "Tutti, store", "Tutti, ordinary", "best other", "which", "ratio, store",
        "ratio, ordinary")


def title_of(conditions):
    """pushpull of resnet50, float32 sum, 2bit, fresh inputs"""
    known = {name: text for name, text in conditions.items() if text not in ("none", "")}
    model = f" of {known['model']}" if "model" in known else ""
    operation = f" {known['redop']}" if "redop" in known else ""
    packing = f", {known['compression']}" if "compression" in known else ""
    return f"{known['collective']}{model}, {known['type']}{operation}{packing}, " \
           f"{known['cache']} inputs"


def place_of(conditions):
    nodes = conditions["nodes"]
    return f"{conditions['ranks']} ranks on {nodes} node{'' if nodes == '1' else 's'}: " \
           f"{conditions['hosts']}"


def cells_of(line):
    def cell(value, text):
        return "n/a" if value is None else text(value)

    best = line["other_us"].get(line["best"])
    return [bytes_text(line["bytes"]), cell(line["store_us"], time_text),
            cell(line["user_us"], time_text), cell(best, time_text), line["best"] or "n/a",
            cell(line["store_ratio"], "{:.2f}".format), cell(line["user_ratio"], "{:.2f}".format)]


def table_of(rows, words):
    """Markdown with columns as wide as their widest cell; those of `words` are left-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows)]

    def text(row):
        return "|" + "|".join(f" {cell:{'<' if i in words else '>'}{width}} "
                              for i, (cell, width) in enumerate(zip(row, widths))) + "|\n"

    rule = "|" + "|".join("-" * (width + 1) + ("-" if i in words else ":")
                          for i, width in enumerate(widths)) + "|\n"
    return text(rows[0]) + rule + "".join(map(text, rows[1:]))


def verdict_of(comparison):
    if comparison.wrong:
        return f"Wrong elements: {comparison.wrong}, FAILED.\n"
    return f"Wrong elements: {0 if comparison.checked else 'not every result was checked'}.\n"


def to_markdown(comparison):
    conditions = comparison.conditions
    versions = {own[0].version: None for own in comparison.launches.values()}
    lines = [f"### {title_of(conditions)}: Tutti and the best of the others\n",
             f"- {place_of(conditions)}; {conditions['processor']}, last-level cache "
             f"{conditions.get('last-level cache', 'not known')}",
             f"- {', '.join([conditions.get('library', 'no Tutti'), *versions])}; "
             f"{comparison.started}",
             "- Configurations (launches): " + ", ".join(
                 f"{name} ({len(own)})" for name, own in comparison.launches.items()),
             *(f"- {note}" for note in comparison.notes),
             "- Microseconds: p50, the longest over the ranks; Tutti's the median over all "
             "launches, another library's over those of a configuration",
             "- Ratio: best other / Tutti of one launch, then the median over the launches of "
             "that configuration\n\n"]
    text = "\n".join(lines)
    text += table_of([HEAD, *map(cells_of, comparison.lines)], {0, 4}) + "\n"
    means = [[name, *("n/a" if found[kind] is None else f"{found[kind]:.2f}"
                      for kind in BUFFERS.values())]
             for name, found in comparison.means() if any(found.values())]
    text += table_of([("geometric mean of", "ratio, store", "ratio, ordinary"), *means], {0}) + "\n"
    text += "".join(f"**Missing:** {each}\n\n" for each in comparison.missing)
    return text + verdict_of(comparison)


def to_text(comparison):
    """The table for a terminal: columns without rules, and what is missing."""
    rows = [HEAD, *map(cells_of, comparison.lines)]
    widths = [max(map(len, column)) for column in zip(*rows)]
    text = f"{title_of(comparison.conditions)}; {place_of(comparison.conditions)}\n"
    for row in rows:
        text += "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths)) + "\n"
    return text + "".join(f"missing: {each}\n" for each in comparison.missing) + \
        verdict_of(comparison)


def to_csv(comparison):
    text = "bytes,configuration,microseconds,store_ratio,user_ratio\n"
    for line in comparison.lines:
        for name, kind in BUFFERS.items():
            if line[name] is not None:
                text += f"{line['bytes']},tutti {kind},{line[name]},,\n"
        for name, microseconds in line["other_us"].items():
            ratios = [line["ratios"][name][kind] for kind in BUFFERS.values()]
            text += f"{line['bytes']},{name},{microseconds}," + \
                ",".join("" if ratio is None else str(ratio) for ratio in ratios) + "\n"
    return text


def to_json(comparison):
    return json.dumps({
        "title": title_of(comparison.conditions),
        "conditions": comparison.conditions, "started": comparison.started,
        "notes": comparison.notes, "missing": comparison.missing,
        "configurations": [{"name": name, "launches": len(own), "version": own[0].version}
                           for name, own in comparison.launches.items()],
        "results": comparison.lines,
        "geometric_means": [{"sizes": name, **found} for name, found in comparison.means()],
        "wrong": comparison.wrong if comparison.checked else None}, indent=2) + "\n"


FORMATS = {"markdown": to_markdown, "text": to_text, "json": to_json, "csv": to_csv}
