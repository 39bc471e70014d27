"""A histogram as SVG, stacked by group, made with the standard library alone."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections import Counter

WIDTH, HEIGHT = 760, 460
LEFT, TOP, BOTTOM, MARGIN = 64, 52, 60, 20

#: Okabe and Ito's colours, which colour-blind readers can distinguish; more groups than colours start over.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")

_NOT_XML = re.compile("[^\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def histogram(values: list[float | None], groups: list[str], *, title: str, x_label: str, y_label: str) -> bytes:
    """The chart as a UTF-8 file. `groups` names the group of each value; empty: one group without a legend."""
    owners = groups or [""] * len(values)
    known = [(value, owner) for value, owner in zip(values, owners, strict=True) if value is not None]
    edges = _edges([value for value, _ in known])
    names = sorted({owner for _, owner in known})
    bins = [Counter[str]() for _ in edges[1:]]
    for value, owner in known:
        place = int((value - edges[0]) / (edges[1] - edges[0]))
        bins[min(max(place, 0), len(bins) - 1)][owner] += 1
    ticks = nice_ticks(0, max(max(counts.total() for counts in bins), 5), 5)
    legend = max(len(name) for name in names) * 7.5 + 40 if groups and names else 0.0
    right = WIDTH - MARGIN - min(legend, WIDTH / 3)

    svg = ET.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {WIDTH} {HEIGHT}",
            "width": str(WIDTH),
            "height": str(HEIGHT),
            "role": "img",
            "font-family": "Helvetica, Arial, sans-serif",
            "font-size": "13",
        },
    )
    ET.SubElement(svg, "title").text = _xml_text(title)
    ET.SubElement(svg, "rect", {"width": "100%", "height": "100%", "fill": "white"})
    _text(svg, LEFT, 24, title, {"font-size": "17", "font-weight": "bold"})
    _y_axis(svg, ticks, y_label, right)
    _bars(svg, bins, names, ticks[-1], right)
    _x_axis(svg, edges, x_label, right)
    if groups:
        _legend(svg, names, right + 16)
    ET.indent(svg)
    document: bytes = ET.tostring(svg, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def nice_ticks(low: float, high: float, wanted: int) -> list[float]:
    """About `wanted` round steps that enclose `low` to `high`."""
    span = high - low or abs(high) or 1.0
    raw = span / wanted
    size = 10.0 ** math.floor(math.log10(raw))
    step = size * next(factor for factor in (1, 2, 2.5, 5, 10) if factor * size >= raw * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [number * step for number in range(first, max(last, first + 1) + 1)]


def _edges(values: list[float]) -> list[float]:
    wanted = min(18, max(6, round(math.sqrt(len(values)))))
    return nice_ticks(min(values), max(values), wanted) if values else [0.0, 1.0]


def _across(share: float, right: float) -> float:
    return LEFT + share * (right - LEFT)


def _up(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _bars(svg: ET.Element, bins: list[Counter[str]], names: list[str], highest: float, right: float) -> None:
    for place, counts in enumerate(bins):
        below = 0
        for colour, name in enumerate(names):
            if not counts[name]:
                continue
            x, x_end = _across(place / len(bins), right), _across((place + 1) / len(bins), right)
            y, bottom = _up((below + counts[name]) / highest), _up(below / highest)
            bar = {"x": x + 0.75, "y": y, "width": x_end - x - 1.5, "height": bottom - y}
            attributes = {key: f"{value:.2f}" for key, value in bar.items()}
            rect = ET.SubElement(svg, "rect", attributes | {"class": "bar", "fill": COLOURS[colour % len(COLOURS)]})
            ET.SubElement(rect, "title").text = _xml_text(f"{name}: {counts[name]}" if name else str(counts[name]))
            below += counts[name]


def _y_axis(svg: ET.Element, ticks: list[float], label: str, right: float) -> None:
    for tick in ticks:
        y = _up(tick / ticks[-1])
        _line(svg, LEFT, y, right, y, "#333" if tick == 0 else "#ddd")
        _text(svg, LEFT - 8, y + 4, f"{tick:g}", {"text-anchor": "end"})
    middle = (TOP + HEIGHT - BOTTOM) / 2
    turned = {"text-anchor": "middle", "transform": f"rotate(-90 18 {middle:.2f})"}
    _text(svg, 18, middle, label, turned)


def _x_axis(svg: ET.Element, edges: list[float], label: str, right: float) -> None:
    every = math.ceil(len(edges) / 10)
    for place, edge in enumerate(edges):
        if place % every == 0:
            x = _across(place / (len(edges) - 1), right)
            _line(svg, x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 5, "#333")
            _text(svg, x, HEIGHT - BOTTOM + 20, f"{edge:.6g}", {"text-anchor": "middle"})
    _text(svg, (LEFT + right) / 2, HEIGHT - 16, label, {"text-anchor": "middle"})


def _legend(svg: ET.Element, names: list[str], x: float) -> None:
    for row, name in enumerate(names):
        y = TOP + row * 20
        colour = COLOURS[row % len(COLOURS)]
        ET.SubElement(svg, "rect", {"x": f"{x:.2f}", "y": str(y), "width": "13", "height": "13", "fill": colour})
        _text(svg, x + 19, y + 11, name or "(none)", {})


def _line(svg: ET.Element, x1: float, y1: float, x2: float, y2: float, colour: str) -> None:
    ends = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
    ET.SubElement(svg, "line", {key: f"{value:.2f}" for key, value in ends.items()} | {"stroke": colour})


def _text(svg: ET.Element, x: float, y: float, text: str, attributes: dict[str, str]) -> None:
    ET.SubElement(svg, "text", {"x": f"{x:.2f}", "y": f"{y:.2f}"} | attributes).text = _xml_text(text)


def _xml_text(text: str) -> str:
    # ElementTree escapes markup but lets through characters that no XML file may hold.
    return _NOT_XML.sub("", " ".join(text.split()))[:80]
