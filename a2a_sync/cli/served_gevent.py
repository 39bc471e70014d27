"""The gunicorn configuration of ``a2a-sync serve --gevent``: as `served`, with greenlets.

Importing it applies gevent's patches.
"""

from __future__ import annotations

from typing import Any

import a2a_sync.gunicorn.gevent as _hooks
from a2a_sync.cli.served import print_address
from a2a_sync.gunicorn.gevent import *  # noqa: F403


def post_worker_init(worker: Any) -> None:  # type: ignore[no-redef]
    """As `served.post_worker_init`, for gevent workers."""
    _hooks.post_worker_init(worker)
    print_address(worker)
