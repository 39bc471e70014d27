"""``tests.services.queued`` with the tables of the former release, as processes run it while a new release is deployed."""

from __future__ import annotations

from a2a_sync.stores.postgres import migrations, schema

schema.VERSION = migrations.VERSION = schema.VERSION - 1  # type: ignore[misc]

from tests.services.queued import app  # noqa: E402

__all__ = ["app"]
