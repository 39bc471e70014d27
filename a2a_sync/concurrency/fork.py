"""Renews in a forked child whatever holds the threads, locks or listeners of one process.

A child inherits locks that no thread will release, and counts of threads that it does not have. Objects registered here are
renewed before the child runs any other code. The registry holds weak references only.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """State that belongs to one process."""

    def renew(self) -> None:
        """Make new state for this process. Called while a child has one thread only; must not raise."""


_registered: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_per_process(holder: Renewable) -> None:
    """Call ``holder.renew()`` now, and in every child that is forked from now on, while `holder` exists."""
    holder.renew()
    _registered.add(holder)


def _renew_all() -> None:
    for holder in list(_registered):
        holder.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
