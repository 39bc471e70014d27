"""Plots of the curves as SVG files, made with matplotlib (extra ``bench``).

``python -m tests.benchmarks.plots ROWS.json FILE.svg`` draws the rows that `tests.benchmarks` has written with ``--json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot, ticker

from tests.benchmarks.curves import PERCENTILES

_STYLES = {
    "a2a_sync, memory": ("#1f5fbf", "o"),
    "a2a_sync, gthread": ("#1f5fbf", "o"),
    "a2a_sync, SQLite": ("#2a9d8f", "s"),
    "a2a_sync, gevent": ("#2a9d8f", "s"),
    "a2a-sdk": ("#d1495b", "^"),
    "fasta2a": ("#8d6a9f", "v"),
}


def draw(results: dict[str, Any], folder: Path) -> None:
    """Write a file for each curve into `folder`."""
    # The same results make the same files.
    pyplot.rcParams.update({"svg.hashsalt": "a2a_sync", "font.size": 9, "axes.spines.top": False})
    for what in ("send", "stream"):
        found = results[f"{what}s"]
        _curve(folder / f"{what}s-rate.svg", found["a second"], "connections", f"{what}s a second")
        _curve(folder / f"{what}s-cpu.svg", found["CPU µs"], "connections", f"processor time of a {what}, µs")
    _curve(folder / "stored.svg", results["stored"]["CPU µs"], "stored tasks", "processor time of a send, µs")
    _curve(folder / "memory.svg", results["memory"]["KB"], "open streams", "memory of each stream, KB")
    percents = [f"{percent:g}" for percent in PERCENTILES]
    _curve(
        folder / "latencies.svg",
        {name: list(zip(percents, found, strict=True)) for name, found in results["sends"]["latencies"].items()},
        "percentile, 16 connections",
        "latency of a send, ms",
        scale="linear",
    )


def draw_services(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write a plot of rows of the benchmark, in parts of their "must": what is left of the line meets it."""
    pyplot.rcParams.update({"svg.hashsalt": "a2a_sync", "font.size": 9, "axes.spines.top": False})
    bounded = [row for row in rows if row["must"]]
    parts = [row["must"] / row["ratio"] if row["least"] else row["ratio"] / row["must"] for row in bounded]
    figure, axes = pyplot.subplots(figsize=(8, 0.45 * len(bounded) + 0.6), layout="constrained")
    colors = [_STYLES["a2a_sync, SQLite" if part <= 1 else "a2a-sdk"][0] for part in parts]
    axes.barh(range(len(bounded)), [max(part, 0.01) for part in parts], height=0.3, color=colors)
    for place, row in enumerate(bounded):
        axes.text(0.0105, place - 0.25, f"{row['name']}: {row['shown'].partition(';')[0]}")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set(xscale="log", xlabel="measured, in parts of what is to be", xlim=(0.01, 3), yticks=[])
    axes.invert_yaxis()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def _curve(path: Path, series: dict[str, Any], x: str, y: str, scale: str = "log") -> None:
    figure, axes = pyplot.subplots(figsize=(8, 3.4), layout="constrained")
    for name, points in series.items():
        color, marker = _STYLES[name]
        known = [point for point in points if point[1] is not None]
        axes.plot([at for at, _ in known], [value for _, value in known], color=color, marker=marker, label=name)
    axes.set(xlabel=x, ylabel=y, xscale=scale, yscale="log")
    if scale == "log":
        ticks = sorted({point[0] for points in series.values() for point in points})
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.minorticks_off()
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside right upper", frameon=False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    draw_services([json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()], Path(sys.argv[2]))
