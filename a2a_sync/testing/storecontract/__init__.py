"""The contract of `TaskStore` as a suite for pytest, for authors of stores.

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

Only this package and `plugin` need pytest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from a2a_sync.testing.storecontract.contexts import Contexts
from a2a_sync.testing.storecontract.eviction import Eviction
from a2a_sync.testing.storecontract.listing import Listing
from a2a_sync.testing.storecontract.races import Races
from a2a_sync.testing.storecontract.reading import Reading
from a2a_sync.testing.storecontract.retention import Retention
from a2a_sync.testing.storecontract.runs import Runs
from a2a_sync.testing.storecontract.webhooks import Webhooks

__all__ = ["StoreContract"]


class StoreContract(Runs, Reading, Listing, Eviction, Retention, Contexts, Webhooks, Races):
    """The tests of a store. Derive a class whose name begins with ``Test`` and define the fixture ``make_store``.

    The fixture returns a function that creates a store and accepts ``max_tasks``, the number of tasks above which the store
    evicts. The first store of a test must be empty; later ones may share its tasks. No wait is longer than 30 seconds.
    """

    @pytest.fixture
    def make_store(self) -> Callable[..., Any]:
        """The function that creates stores; a subclass must override this fixture."""
        raise NotImplementedError("give the class a fixture make_store: see a2a_sync.testing.storecontract")

    @pytest.fixture
    def store(self, make_store: Callable[..., Any]) -> Any:
        """An empty store."""
        return make_store()
