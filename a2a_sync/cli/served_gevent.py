"""The gunicorn configuration of ``a2a-sync serve --gevent``: as `served`, with greenlets.

Importing it applies gevent's patches.
"""

from __future__ import annotations

from typing import Any

import a2a_sync.gunicorn.gevent as _hooks
from a2a_sync.cli.served import say_address
from a2a_sync.gunicorn.gevent import child_exit as child_exit
from a2a_sync.gunicorn.gevent import control_socket_disable as control_socket_disable
from a2a_sync.gunicorn.gevent import graceful_timeout as graceful_timeout
from a2a_sync.gunicorn.gevent import keepalive as keepalive
from a2a_sync.gunicorn.gevent import post_fork as post_fork
from a2a_sync.gunicorn.gevent import post_request as post_request
from a2a_sync.gunicorn.gevent import pre_fork as pre_fork
from a2a_sync.gunicorn.gevent import pre_request as pre_request
from a2a_sync.gunicorn.gevent import worker_class as worker_class
from a2a_sync.gunicorn.gevent import worker_exit as worker_exit


def post_worker_init(worker: Any) -> None:
    """As `served.post_worker_init`, for gevent workers."""
    _hooks.post_worker_init(worker)
    say_address(worker)
