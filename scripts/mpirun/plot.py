#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the JSON of collective-benchmark, collective-simulator or compare.py as a picture (SVG).

    plot.py RESULTS.json PICTURE.svg
    plot.py --check                     ends with 1 where the picture could not be drawn

Exit codes: 0 done; 1 matplotlib is missing, or RESULTS.json is none of these; 2 PICTURE.svg cannot
be written.
"""

import json
import math
import re
import sys

COLORS = {"store": "#0072b2", "user": "#8250a0", "mpi": "#d55e00", "other": "#009e73"}
KINDS = {"store": "Tutti, store's memory", "user": "Tutti, ordinary memory"}
MISSING = ("matplotlib is missing: apt-get install python3-matplotlib, or pip install matplotlib; "
           "then scripts/mpirun/plot.py draws the JSON of the results")


def fail(text, code=1):
    print(f"plot.py: {text}", file=sys.stderr)
    sys.exit(code)


def library():
    try:
        import matplotlib
    except ImportError:
        fail(MISSING)
    matplotlib.use("svg")
    # The same results give the same file; words stay words, which a browser can find.
    matplotlib.rcParams.update({"svg.hashsalt": "tutti", "svg.fonttype": "none",
                                "font.size": 9, "axes.grid": True, "grid.color": "#dddddd"})
    from matplotlib import pyplot
    return pyplot


def bytes_text(number, _position=None):
    power = min(int(math.log2(number)) // 10, 4) if number >= 1 else 0
    return f"{number / 1024 ** power:.4g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def without_folders(text):
    """`text` with the plain names of the files in it."""
    return re.sub(r"/\S*/", "", text)


def place_of(ranks, nodes):
    return f"{ranks} rank{'' if int(ranks) == 1 else 's'} on {nodes} " \
           f"node{'' if int(nodes) == 1 else 's'}"


def panel(axes, title, curves, along="size", level=None):
    """`curves`: (id, name, color, [(x, y), ...]). One point of each is a bar with its value."""
    axes.set_title(title)
    curves = [curve for curve in curves if any(y > 0 for _, y in curve[3])]
    if not curves:
        axes.text(0.5, 0.5, "nothing to show", ha="center", transform=axes.transAxes)
        return
    if all(len(points) == 1 for *_, points in curves):
        axes.barh([name for _, name, _, _ in curves], [p[0][1] for *_, p in curves],
                  color=[color for _, _, color, _ in curves])
        for i, (*_, points) in enumerate(curves):
            axes.text(points[0][1], i, f" {points[0][1]:.3g}", va="center")
        return
    for name_of_series, name, color, points in curves:
        axes.plot(*zip(*sorted(points)), marker="o", markersize=3, color=color, label=name,
                  gid=f"series-{name_of_series}")
    if level:
        axes.axhline(level[0], linestyle="--", linewidth=1, color="#666666", label=level[1])
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel(along)
    if along == "size":
        axes.xaxis.set_major_formatter(bytes_text)
    else:
        axes.xaxis.set_major_formatter(lambda number, _: f"{number:.0f}")
    axes.yaxis.set_major_formatter(lambda number, _: f"{number:g}")
    axes.legend(fontsize=8)


def of_comparison(whole):
    """compare.py's results.json: times, and how many times faster Tutti is than the best."""
    lines = whole["results"]

    def curve(kind, name, value_of):
        points = [(line["bytes"], value_of(line)) for line in lines]
        return kind, name, COLORS[kind], [(x, y) for x, y in points if y is not None]

    times = [curve(kind, name, lambda line, kind=kind: line[f"{kind}_us"])
             for kind, name in KINDS.items()]
    times.append(curve("other", "best other", lambda line: line["other_us"].get(line["best"])))
    ratios = [curve(kind, name, lambda line, kind=kind: line[f"{kind}_ratio"])
              for kind, name in KINDS.items()]
    known = whole["conditions"]
    return whole["title"], [
        f"{place_of(known['ranks'], known['nodes'])}: {known['hosts']}  ·  "
        f"{known['processor']}", whole["started"]], [
        ("microseconds, median (lower is better)", times, "size", None),
        ("time of the best other / time of Tutti (higher is better)", ratios, "size",
         (1, "as fast as the best other"))]


def of_simulator(whole):
    """collective-simulator: a panel for each size, time over the number of nodes."""
    results, config = whole["results"], whole["config"]
    palette = ["#0072b2", "#d55e00", "#009e73", "#8250a0", "#666666"]
    names = list(dict.fromkeys(each["backend"] for each in results))
    panels = []
    for size in dict.fromkeys(each["bytes"] for each in results):
        curves = [(name, name, palette[i % 5],
                   [(each["nodes"], each["time_us"]["p50"]) for each in results
                    if each["backend"] == name and each["bytes"] == size])
                  for i, name in enumerate(names)]
        panels.append((f"{bytes_text(size)}: microseconds, slowest rank (lower is better)",
                       curves, "nodes", None))
    first, per_node = results[0], config["ranks_per_node"]
    packing = f" {first['compression']}" if first["compression"] else ""
    place = ", memory of the node" if first["buffers"] == "store" else ""
    return f"{first['collective']}{packing}, float32 sum{place}", [
        f"{config['network']}  ·  {per_node} rank{'' if per_node == 1 else 's'} per node",
        "simulated: no machine was measured"], panels


def of_benchmark(whole):
    results, config, environment = whole["results"], whole["config"], whole["environment"]
    both = len({each["buffers"] for each in results if each["backend"] == "tutti"}) > 1
    contenders = {}
    for each in results:
        contenders.setdefault((each["backend"], each["buffers"]), []).append(each)

    def curves(value_of):
        for (backend, buffers), own in contenders.items():
            tutti = backend == "tutti"
            name = f"Tutti, {buffers} memory" if tutti and both else "Tutti" if tutti else \
                "NCCL" if backend == "nccl" else environment["mpi"].split(" (")[0]
            yield (f"{backend}-{buffers}" if tutti and both else backend, name,
                   COLORS.get(buffers if tutti else backend, COLORS["store" if tutti else "other"]),
                   [(each["bytes"], value_of(each)) for each in own])

    first, memory, ranks = results[0], environment["memory_gbs"], environment["ranks"]
    model = f" of {config['model']}" if config["model"] else ""
    redop = "" if first["redop"] in (None, "none") else f" {first['redop']}"
    level = None
    if memory and memory.get("busbw_limit"):
        level = (memory["busbw_limit"], f"beyond the caches memory "
                 f"{'allows' if memory['exceeds_cache'] else '(or a cache) allows'} "
                 f"{memory['busbw_limit']:.3g} GB/s")
    return f"{config['collective']}{model}, {first['type']}{redop}, {config['cache']} inputs", [
        f"{place_of(ranks, environment['nodes'])}  ·  {environment['processor']}",
        f"{environment['library']}  ·  {without_folders(environment['mpi'])}  ·  "
        f"{environment['started']}"], [
        ("microseconds, median (lower is better)",
         list(curves(lambda each: each["time_us"]["p50"])), "size", None),
        ("bus bandwidth, GB/s (higher is better)", list(curves(lambda each: each["busbw_gbs"])),
         "size", level)]


def draw(pyplot, content, path):
    title, lines, panels = content
    rows = (len(panels) + 1) // 2
    figure, axes = pyplot.subplots(rows, 2, figsize=(12, 1.2 + 4 * rows), squeeze=False,
                                   layout="constrained")
    figure.suptitle("\n".join([title, *lines]), fontsize=9)
    for each, words in zip(axes.flat, panels):
        panel(each, *words)
    for each in axes.flat[len(panels):]:
        each.set_visible(False)
    try:
        figure.savefig(path, format="svg", metadata={"Date": None})
    except OSError as error:
        fail(f"{path}: cannot be written: {error.strerror}", 2)


def main():
    if sys.argv[1:] == ["--check"]:
        library()
        return
    if len(sys.argv) != 3:
        fail("usage: plot.py RESULTS.json PICTURE.svg")
    pyplot = library()
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            whole = json.load(file)
        content = of_comparison(whole) if "conditions" in whole else \
            of_simulator(whole) if "network" in whole["config"] else of_benchmark(whole)
    except OSError as error:
        fail(f"{sys.argv[1]}: {error.strerror}")
    except (ValueError, KeyError, IndexError, TypeError) as error:
        fail(f"{sys.argv[1]}: no results of these programs: {type(error).__name__}: {error}")
    draw(pyplot, content, sys.argv[2])


if __name__ == "__main__":
    main()
