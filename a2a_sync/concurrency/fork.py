"""Who begins anew in a forked child: everything that holds the threads, locks or listeners of one process.

A child inherits locks that nobody will release and counts of threads that do not exist. What is registered here is made
new before the child runs any code of its own. Nothing is kept alive by it.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """State that belongs to one process."""

    def renew(self) -> None:
        """Begin anew, in a child that has one thread only. Must not raise."""


_registered: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renew_in_child(holder: Renewable) -> None:
    """Call ``holder.renew()`` in every child that is forked from now on, as long as `holder` lives."""
    _registered.add(holder)


def _renew_all() -> None:
    for holder in list(_registered):
        holder.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
