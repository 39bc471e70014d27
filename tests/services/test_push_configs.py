"""The tests of the configurations of webhooks once more, over PostgreSQL."""

from __future__ import annotations

from tests.push.test_configs import *  # noqa: F403
from tests.services.conftest import serve  # noqa: F401 (in place of the fixture of this module)
