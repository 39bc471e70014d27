"""Lists of tasks: those of all owners for operators, and those of the caller for everyone else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from a2a_sync.operations import LIST_TASKS, OWNER_MARK, Call, CallContext, mount_name, quota_owner
from a2a_sync.stores.base import Inspection, Owner, SummaryQuery, TaskSummary, require
from a2a_sync.types import ListTasksRequest, TaskState

if TYPE_CHECKING:
    from a2a_sync.console.access import Viewer
    from a2a_sync.wsgi.app import A2AApp

#: Tasks of a page, and the tasks that are read for it where a filter has no index.
PAGE, _MAX_READ = 50, 5_000
#: The periods of the filter, in seconds.
PERIODS = {"hour": 3600, "day": 86_400, "week": 604_800}


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list is limited to; empty for no limit. `owner` is an id without the name of the agent."""

    state: str = ""
    context: str = ""
    owner: str = ""
    period: str = ""

    @property
    def states(self) -> TaskState | None:
        """The state, if one is named."""
        return TaskState(self.state) if self.state in set(TaskState) else None


@dataclass(frozen=True, slots=True)
class Row:
    """A task in a list. ``owner`` and ``tenant`` are those that its page needs."""

    id: str
    state: TaskState
    context_id: str
    owner: str = ""
    tenant: str = ""
    entries: int | None = None
    bytes: int | None = None
    created_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """Rows, the position of the next page (empty: there is none), and the number of tasks in each state."""

    rows: list[Row]
    older: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    #: Not all tasks were searched: the next page continues.
    partial: bool = False
    #: Tasks that an agent elsewhere sent beyond the size of a page; they are not shown.
    excess: int = 0


def list_all(app: A2AApp, filters: Filters, before: str) -> Page:
    """Tasks of all owners, the newest first. Raises `StoreError` where the store has no `Inspection`."""
    inspection = require(app.store.inspection, "inspection")
    name = app.service.mount_name
    since = PERIODS.get(filters.period)
    query = SummaryQuery(
        state=filters.states,
        since_ms=None if since is None else int((time.time() - since) * 1000),
        before=int(before) if before.isascii() and before.isdigit() and len(before) < 19 else None,
        size=200,
    )
    rows: list[Row] = []
    read = last = 0
    for task in _summaries(inspection, query):
        read, last = read + 1, task.position
        if (
            mount_name(task.owner.id) == name
            and (not filters.context or task.context_id == filters.context)
            and (not filters.owner or quota_owner(task.owner.id) == filters.owner)
        ):
            rows.append(_row(task))
        if len(rows) == PAGE or read == _MAX_READ:
            return Page(rows, str(last), _counts(inspection, name), partial=len(rows) < PAGE)
    return Page(rows, "", _counts(inspection, name))


def _summaries(inspection: Inspection, query: SummaryQuery) -> Iterator[TaskSummary]:
    while True:
        page = inspection.tasks(query)
        yield from page
        if len(page) < query.size:
            return
        query = replace(query, before=page[-1].position)


def _row(task: TaskSummary) -> Row:
    return Row(
        task.id,
        task.state,
        task.context_id,
        quota_owner(task.owner.id),
        task.owner.tenant,
        task.version,
        task.bytes,
        task.created_ms,
    )


def _counts(inspection: Inspection, name: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for owner, states in inspection.counts().items():
        if mount_name(owner.id) == name:
            for state, count in states.items():
                counts[str(state)] = counts.get(str(state), 0) + count
    return counts


def list_own(app: A2AApp, viewer: Viewer, filters: Filters, token: str) -> Page:
    """The tasks of the caller, as ListTasks returns them. Raises as the call does."""
    request = ListTasksRequest(
        context_id=filters.context,
        status=filters.states or TaskState.UNSPECIFIED,
        page_size=PAGE,
        page_token=token,
        history_length=0,
    )
    # With `gone`, as a request over HTTP: a search among very many tasks has a share of the threads.
    context = CallContext(principal=viewer.principal, gone=lambda: False)
    try:
        answer = app.service.call(Call(LIST_TASKS, request, context))
    finally:
        app.service.engine.responses.release()
    rows = [Row(task.id, task.state, task.context_id) for task in answer.tasks]
    return Page(rows, answer.next_page_token)


def owner_with(app: A2AApp, tenant: str, owner: str) -> Owner:
    """The owner as the store names it: `owner` among those of this agent."""
    name = app.service.mount_name
    return Owner(tenant, f"{name}{OWNER_MARK}{owner}" if name else owner)
