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

from typing import Any

import pytest

from a2a_sync.testing.storecontract.contexts import Contexts
from a2a_sync.testing.storecontract.eviction import Eviction
from a2a_sync.testing.storecontract.inspection import Inspections, Persistence, Versions
from a2a_sync.testing.storecontract.listing import Listing
from a2a_sync.testing.storecontract.making import MakeStore
from a2a_sync.testing.storecontract.races import Races
from a2a_sync.testing.storecontract.reading import Reading
from a2a_sync.testing.storecontract.retention import Retention
from a2a_sync.testing.storecontract.runs import Runs
from a2a_sync.testing.storecontract.webhooks import Webhooks
from a2a_sync.testing.storecontract.workers import Leases

__all__ = ["StoreContract"]

#: The optional parts of a store, and what an app lacks without each.
_PARTS = {
    "contexts": "handlers have no state and no memory",
    "webhooks": "apps have no push notifications",
    "workers": "one process uses the store, and runs that it leaves are not resumed",
    "inspection": "operators cannot read across owners",
}
#: The classes of tests that need a part.
_NEED = {Contexts: "contexts", Webhooks: "webhooks", Leases: "workers", Inspections: "inspection"}


class StoreContract(
    Runs, Reading, Listing, Eviction, Retention, Versions, Contexts, Webhooks, Leases, Inspections, Persistence, Races
):
    """The tests of a store. Derive a class whose name begins with ``Test`` and define the fixture ``make_store``.

    Set ``persistent = True`` in the class if the data of the store outlive it. Tests of parts that the store lacks are skipped,
    with the part as the reason (``pytest -rs`` lists them).

    The fixture returns a function that creates a store and accepts ``max_tasks``, the number of tasks above which the store
    evicts. The first store of a test must be empty; later ones may share its tasks. No wait is longer than 30 seconds.
    """

    @pytest.fixture
    def make_store(self) -> MakeStore:
        """The function that creates stores; a subclass must override this fixture."""
        raise NotImplementedError("give the class a fixture make_store: see a2a_sync.testing.storecontract")

    #: Whether a second store that ``make_store`` creates has the tasks of the first one, also after that was closed.
    persistent = False

    @pytest.fixture(autouse=True)
    def _needed(self, request: pytest.FixtureRequest) -> None:
        """Skip a test that needs what the store lacks."""
        suite = next((one for one in (*_NEED, Persistence) if request.function.__name__ in vars(one)), None)
        if suite is Persistence and not self.persistent:
            pytest.skip("the store does not claim that its data persist (persistent = True)")
        part = _NEED.get(suite) if suite is not None else None
        if part is not None and getattr(request.getfixturevalue("make_store")(), part) is None:
            pytest.skip(f"the store lacks {part}: {_PARTS[part]}")

    @pytest.mark.parametrize("part", _PARTS)
    def test_the_store_has_the_part(self, make_store: MakeStore, part: str) -> None:
        store = make_store()
        assert hasattr(store, part), f"set {part} = None in a store without this part"
        if getattr(store, part) is None:
            pytest.skip(f"the store lacks {part}: {_PARTS[part]}")

    def test_a_store_has_messages_between_processes_only_if_they_can_share_it(self, make_store: MakeStore) -> None:
        store = make_store()
        pubsub = store.pubsub()
        if pubsub is not None:
            pubsub.close()
            assert store.workers is not None

    @pytest.fixture
    def store(self, make_store: MakeStore) -> Any:
        """An empty store."""
        return make_store()
