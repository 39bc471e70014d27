"""The ids of the rows of docs/reference/feature-comparison.md: one for each feature in the documents of the five systems."""

from __future__ import annotations

#: The number of features of each system.
COUNTS = {"A": 36, "B": 19, "C": 32, "D": 26, "E": 13}
IDS = [f"{system}{number}" for system, count in COUNTS.items() for number in range(1, count + 1)]
