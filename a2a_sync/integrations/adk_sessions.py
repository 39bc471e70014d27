"""The sessions of the Google ADK as the memory of a conversation; for ``a2a_sync.integrations.adk``.

A session is one line of events. The memory of the bridge names the session of the conversation and its last good invocation. What
canceled and lost runs have left behind it is taken back; while a task waits for an answer, it keeps its session, and other
tasks continue in a copy.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from a2a_sync.agent.executor import RequestContext
from a2a_sync.integrations.bridge import Remember, Turn
from a2a_sync.operations import NAMED_MARK

try:
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.events import Event
except ImportError as _error:
    raise ImportError("ADKExecutor needs the Google ADK: pip install 'a2a-sync[adk]'") from _error


class Sessions:
    """The session of one run. Not shared by runs."""

    def __init__(self, runner: Any, turn: Turn) -> None:
        self._runner = runner
        self._service = runner.session_service
        self._turn = turn
        self._known = turn.memory[-1] if turn.memory else {"session": "", "invocation": ""}
        self.user: str = user_id(turn.context)
        self.session: str = ""

    @property
    def where(self) -> dict[str, str]:
        """The names of the session, as the services of the ADK take them."""
        return {"app_name": self._runner.app_name, "user_id": self.user, "session_id": self.session}

    async def begin(self) -> None:
        """Find or create the session."""
        pending: Any = self._turn.pending
        if self._turn.resumes and pending:
            self.session = pending["session"]
            return
        session = await self._get(self._known["session"]) if self._known["session"] else None
        if session is None:
            self.session = await self._create(self._turn.context.context_id)
            return
        self.session = session.id
        good = _good(session, self._known)
        later = session.events[len(good) :]
        if later and self._known.get("asked"):
            self.session = await self._copy(good)
        elif later:
            about = {"user_id": self.user, "session_id": session.id}
            await self._runner.rewind_async(**about, rewind_before_invocation_id=later[0].invocation_id)

    def asks(self) -> tuple[dict[str, Any], Remember]:
        """What the task keeps while it waits, and what the conversation does."""
        pending: Any = self._turn.pending or {"session": self.session, "base": self._known["invocation"]}
        return pending, Remember([] if self._turn.resumes else lambda memory: [self._waiting(memory)])

    def _waiting(self, memory: list[Any]) -> dict[str, Any]:
        known = memory[-1] if memory else {"session": self.session, "invocation": ""}
        return {**known, "session": self.session, "asked": True}

    async def ends(self, invocation: str) -> Remember:
        """What the conversation keeps of a run that has ended."""
        session, pending = self.session, self._turn.pending
        if self._turn.resumes and pending and self._known["session"] != session:
            # Other tasks have continued meanwhile.
            own, others = await self._get(session), await self._get(self._known["session"])
            added = own.events[len(_good(own, {"invocation": pending["base"]})) :]
            session = await self._copy([*(_good(others, self._known) if others is not None else ()), *added])
        return Remember(lambda _: [{"session": session, "invocation": invocation}])

    async def _get(self, session: str) -> Any:
        return await self._service.get_session(app_name=self._runner.app_name, user_id=self.user, session_id=session)

    async def _create(self, session: str | None = None) -> str:
        about = {"app_name": self._runner.app_name, "user_id": self.user}
        try:
            return str((await self._service.create_session(**about, session_id=session)).id)
        except (AlreadyExistsError, ValueError):
            # A lost run or another owner has it, or the service chooses ids itself.
            return str((await self._service.create_session(**about)).id)

    async def _copy(self, events: list[Any]) -> str:
        copied = await self._get(await self._create())
        for event in events:
            await self._service.append_event(copied, event.model_copy(update={"id": Event.new_id()}))
        return str(copied.id)


def user_id(context: RequestContext) -> str:
    """The user of the ADK's sessions: the owner of the task, as of the memory, or one for each conversation; by tenant.

    No two of tenants, callers and owners that ``owner=`` names are one user: a quoted tenant contains neither ``/`` nor ``@``.
    """
    tenant, owner = quote(context.tenant, safe=""), context.owner_id
    if owner.startswith(NAMED_MARK):
        return f"{tenant}@owner/{owner.removeprefix(NAMED_MARK)}"
    user = owner or "_".join(("A2A", "USER", context.context_id))
    return f"{tenant}/{user}" if tenant or "/" in user else user


def _good(session: Any, known: dict[str, Any]) -> list[Any]:
    """The events up to the last one of the last good invocation."""
    invocations = [event.invocation_id for event in session.events]
    if known["invocation"] not in invocations:
        return []
    return list(session.events[: len(invocations) - invocations[::-1].index(known["invocation"])])
