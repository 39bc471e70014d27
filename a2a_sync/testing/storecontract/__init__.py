"""What every store promises, as a suite for pytest: for people who write one.

::

    from a2a_sync.testing.storecontract import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture
        def make_store(self, tmp_path):
            stores = []

            def make(**options):
                stores.append(MyStore(tmp_path / "tasks", **options))
                return stores[-1]

            yield make
            for store in stores:
                store.close()

This is the only room besides `plugin` that needs pytest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from a2a_sync.testing.storecontract.contexts import Contexts
from a2a_sync.testing.storecontract.listing import Listing
from a2a_sync.testing.storecontract.races import Races
from a2a_sync.testing.storecontract.reading import Reading
from a2a_sync.testing.storecontract.retention import Retention
from a2a_sync.testing.storecontract.room import Room
from a2a_sync.testing.storecontract.runs import Runs
from a2a_sync.testing.storecontract.webhooks import Webhooks

__all__ = ["StoreContract"]


class StoreContract(Runs, Reading, Listing, Room, Retention, Contexts, Webhooks, Races):
    """Make a subclass whose name begins with ``Test`` and give it a fixture ``make_store``.

    The fixture gives a function that makes an empty store at its first call of a test and takes ``max_tasks``, the number of
    tasks that it keeps; each store that it made in one test may be over the same tasks. No wait is longer than 30 seconds.
    """

    @pytest.fixture
    def make_store(self) -> Callable[..., Any]:
        """What a subclass says."""
        raise NotImplementedError("give the class a fixture make_store: see a2a_sync.testing.storecontract")

    @pytest.fixture
    def store(self, make_store: Callable[..., Any]) -> Any:
        """An empty store."""
        return make_store()
