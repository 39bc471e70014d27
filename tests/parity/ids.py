"""What must have a row on the page about parity: one id for each thing that the five systems' documents name."""

from __future__ import annotations

#: How many things each system's documents name.
COUNTS = {"A": 36, "B": 19, "C": 32, "D": 26, "E": 13}
IDS = [f"{system}{number}" for system, count in COUNTS.items() for number in range(1, count + 1)]
#: Belong to a framework that there is no bridge to.
BRIDGES = {"C25", "C26", "C27"}
