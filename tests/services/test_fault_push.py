"""The tests of deliveries by servers that die once more, over PostgreSQL, without and with Celery."""

from __future__ import annotations

import pytest

from tests.faults.test_push import *  # noqa: F403
from tests.services.celeryworkers import LONG
from tests.services.conftest import place  # noqa: F401 (in place of the fixture of this module)

pytestmark = [pytest.mark.live, pytest.mark.timeout(2 * LONG)]
