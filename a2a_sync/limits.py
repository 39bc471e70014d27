"""The limits of a server, and of one owner of tasks on it, with their defaults."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any

__all__ = [
    "Limits",
    "OwnerQuota",
]

#: The longest id that a client may choose, in characters.
MAX_ID_LENGTH = 256


def check_numbers(options: Any, may_be_zero: Collection[str] = ()) -> None:
    """Check that the numbers of a dataclass are positive: whole ones at least 1. None is valid where the type allows it.

    Raises:
        TypeError: one is no number, or is a fraction in place of a whole number.
        ValueError: one is not positive, or is None. The messages name it.
    """
    for item in fields(options):
        # The types are text: annotations of these modules are not evaluated.
        kind, *optional = str(item.type).split(" | ")
        if kind not in ("int", "float"):
            continue
        name, value = f"{type(options).__name__}.{item.name}", getattr(options, item.name)
        if value is None:
            if not optional:
                raise ValueError(f"{name} must be a number, not None")
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"{name} must be a number, not {value!r}")
        elif not (value >= 1 if kind == "int" else value > 0) and not (value == 0 and item.name in may_be_zero):
            raise ValueError(f"{name} must be positive, not {value!r}")
        elif kind == "int" and not isinstance(value, int):
            raise TypeError(f"{name} must be a whole number, not {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one app. Times are in seconds, sizes in bytes. Where None is allowed, it means no limit.

    Requests:
        max_body_bytes: largest request body, and gRPC message; a larger one is refused unread (HTTP 413).
        header_timeout: how long a client may take to send the request line and the headers. The worker of
            `a2a_sync.gunicorn` enforces it and then closes the connection.
        body_idle_timeout: how long a client may send nothing in the middle of a body.
        body_timeout: how long a client may take to send a body (± 25 %); then its connection is closed.
        max_message_parts: parts of a message.
        max_metadata_bytes: largest metadata of a message, and of a request, as JSON.
        max_page_size: largest page of ListTasks.
        max_history_length: most messages in the history of a returned task, even if the client requests more.
        max_response_bytes: bytes of tasks in one response or in the snapshot of a stream, approximately as JSON.
            Histories are cut to the newest messages that fit, and pages of ListTasks end early; the artifacts of a task
            are always sent completely.
        max_pending_response_bytes: stored bytes of the tasks in all responses of more than 1 MiB that a process reads and encodes at
            the same time, and of request bodies of that size; others wait for them, up to ten seconds, then HTTP 429.
        max_history_part_bytes: largest part of a message that is sent back in a history; a larger one is left out, and a text says so.

    Runs:
        max_concurrent_runs: runs at once in one process, each on a thread of its own.
        max_queued_runs: runs that may wait for a thread; beyond it HTTP 429 and nothing is stored.
        max_abandoned_threads: threads of runs that have exceeded their time limit and have not returned, in addition to
            `max_concurrent_runs`.
        run_timeout: longest run; then the task is failed.
        run_idle_timeout: longest time between two events of a run; then the task is failed.
        busy_task_timeout: how long a message to a busy task waits for the run to end.
        blocking_send_timeout: longest blocking send; then the task is returned in its current state (None: the send
            waits until the task pauses).
        direct_reply_timeout: how long a ``direct`` agent has to answer without a task.
        task_store_timeout: how long the run of a blocking send may go on before its new task is stored, so that a short run
            needs one write; not where the send has an idempotency key or a webhook, or the agent retries. 0: stored first.
        cancel_handler_timeout: how long ``handle_cancel`` may take before the task is canceled anyway.
        worker_heartbeat_interval: interval of the heartbeat of a process with a shared store. After two missing
            heartbeats its runs are lost: they fail, or run again if the agent has ``on_worker_lost = "retry"``.
        max_run_attempts: how many workers may die during one request before its task is failed.

    Tasks:
        terminal_task_ttl: how long a task is kept after it has ended.
        interrupted_task_ttl: how long a task that waits for its client is kept (``input-required``, ``auth-required``).
        max_task_bytes: bytes of one stored task, approximately as JSON. A message that would exceed it is refused (HTTP
            413), and a run that would exceed it fails.
        stream_replay_window: how long the streams of a run can be resumed after it has ended. Then the log of a task
            with many entries is compacted to its messages and final artifacts, which are sufficient for all other
            reads.
        max_context_state_bytes: largest `RequestContext.state` of a context, as JSON. A run that uses the state reads
            all of it once, and each change stores all of it.
        max_context_memory_bytes: largest `RequestContext.memory` of a context, and `RequestContext.pending` of a task.
        sweep_interval: how often a process removes and compacts old tasks (± 50 %).

    Streams:
        max_open_streams: open streams at once in one process, and blocking sends that wait without a thread (over gRPC, and with
            the worker of `a2a_sync.gunicorn`); beyond it HTTP 429. With the settings of `a2a_sync.gunicorn` an
            eighth of the connections of the worker stays free of them.
        server_threads: threads of the server in one process. Where it cannot resume responses, each open stream and each blocking
            send holds one. An eighth of the threads, at least two, is reserved for other requests: further streams and sends
            get HTTP 429. None: the number that the settings for gunicorn pass, or no limit.
        max_buffered_batches: batches of entries in the queue of one subscriber; a slower one reads the log instead.
        disconnect_check_interval: how often an idle stream checks for a lost client or a stopping server.
        stream_keepalive_interval: how often an idle stream sends a comment, and gRPC pings a silent connection with calls.
        write_timeout: how long a client may read nothing of a response.
        max_stream_age: longest duration of one stream; then it ends, and the client resumes it.
        max_connections: concurrent gRPC connections in one process; further ones are closed immediately.
        connection_idle_timeout: how long a gRPC connection may have no call.
        store_poll_interval: how often a process with streams or blocked calls polls a shared store, because messages between processes may
            be lost.
    """

    max_body_bytes: int = 10 * 1024 * 1024
    header_timeout: float = 10.0
    body_idle_timeout: float = 30.0
    body_timeout: float = 120.0
    max_message_parts: int = 1000
    max_metadata_bytes: int = 64 * 1024
    max_page_size: int = 100
    max_history_length: int = 1000
    max_response_bytes: int | None = 32 * 1024 * 1024
    max_pending_response_bytes: int = 32 * 1024 * 1024
    max_history_part_bytes: int | None = None

    max_concurrent_runs: int = 64
    max_queued_runs: int = 256
    max_abandoned_threads: int = 64
    run_timeout: float | None = 3600.0
    run_idle_timeout: float | None = None
    busy_task_timeout: float = 20.0
    blocking_send_timeout: float | None = None
    direct_reply_timeout: float = 0.03
    task_store_timeout: float = 0.1
    cancel_handler_timeout: float = 0.5
    worker_heartbeat_interval: float = 2.0
    max_run_attempts: int = 3

    terminal_task_ttl: float | None = 7 * 86400.0
    interrupted_task_ttl: float | None = 30 * 86400.0
    max_task_bytes: int | None = 32 * 1024 * 1024
    stream_replay_window: float | None = 600.0
    max_context_state_bytes: int = 1024 * 1024
    max_context_memory_bytes: int = 4 * 1024 * 1024
    sweep_interval: float = 60.0

    max_open_streams: int = 1000
    server_threads: int | None = None
    max_buffered_batches: int = 256
    disconnect_check_interval: float = 1.0
    stream_keepalive_interval: float = 15.0
    write_timeout: float = 30.0
    max_stream_age: float = 3600.0
    max_connections: int = 1000
    connection_idle_timeout: float = 300.0
    store_poll_interval: float = 5.0

    def __post_init__(self) -> None:
        check_numbers(self, _MAY_BE_ZERO)

    @classmethod
    def of(cls, limits: Limits | None) -> Limits:
        """`limits` themselves, or the defaults for None.

        Raises:
            TypeError: they are of another type.
        """
        if limits is not None and not isinstance(limits, Limits):
            raise TypeError(f"limits takes Limits(…), not a {type(limits).__name__}")
        return limits or cls()


_MAY_BE_ZERO = frozenset(
    {
        "max_queued_runs",
        "max_abandoned_threads",
        "busy_task_timeout",
        "max_history_length",
        "direct_reply_timeout",
        "task_store_timeout",
        "cancel_handler_timeout",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerQuota:
    """The share of a server that one owner of tasks (the caller, or the owner that ``owner=`` names) may use.

    The agents of an `AgentHost` share one quota for each owner. Runs, streams and deliveries are counted in each
    process, tasks and bytes in the store. If a count is None, an owner gets a fair share: it may use one more while it
    uses fewer than are free. One owner alone gets half of them, two owners get a third each, and some remain for the
    next owner. Callers without a principal are one owner (``""``). If an app has no other owners (neither ``auth=`` nor
    ``owner=``), this owner may use everything.

    Parameters:
        max_concurrent_runs: runs at once, of `Limits.max_concurrent_runs`.
        max_queued_runs: runs that wait for a thread, of `Limits.max_queued_runs`.
        max_open_streams: open streams, and sends that wait for their answer on a thread of the server, together.
        max_tasks: stored tasks; the owner's oldest are evicted. None: only the limit of the store applies, at which the
            oldest tasks of the owner with the most tasks are evicted.
        max_stored_bytes: bytes of stored tasks when a run begins; the owner's oldest are evicted. Running tasks may
            then grow to `Limits.max_task_bytes` each. None: no limit.
        max_concurrent_deliveries: push notifications that are posted at once, of `PushOptions.max_concurrent_deliveries`.

    Raises:
        ValueError: a number that is not positive.
    """

    max_concurrent_runs: int | None = None
    max_queued_runs: int | None = None
    max_open_streams: int | None = None
    max_tasks: int | None = None
    max_stored_bytes: int | None = 1024**3
    max_concurrent_deliveries: int | None = None

    def __post_init__(self) -> None:
        check_numbers(self, {"max_queued_runs"})
