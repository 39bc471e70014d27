"""`AgentSpec`: the form in which the server runs an agent of any class."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeAlias, runtime_checkable

from a2a_sync.agent.executor import AgentExecutor, Event, RequestContext
from a2a_sync.agent.extensions import Extension
from a2a_sync.card import AgentCard, AgentExtension

Execute: TypeAlias = Callable[[RequestContext], Iterator[Event] | None]
CancelHandler: TypeAlias = Callable[[RequestContext], object]


@runtime_checkable
class SpecifiesAgent(Protocol):
    """An agent with members that have other meanings than those of `AgentExecutor`, such as `Agent.cancel`."""

    def agent_spec(self) -> AgentSpec:
        """The agent as the server runs it."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AgentSpec:
    """What the server uses of an agent. Compared by identity.

    The callables read the agent when they are called, not when the spec is made: a handler that is decorated after
    ``A2AApp(agent)`` is used from then on.

    Parameters:
        execute: runs the agent for one message, on the thread of the run.
        cancel_handler: returns the function that is called before a cancel, or None if there is none.
        on_worker_lost: returns ``"retry"`` if a run whose worker died is executed again, else ``"fail"``.
        native_thread: returns whether runs need a real thread under gevent.
        check_handler: raises `TypeError` if the agent has no handler.
        describe: returns the card; None if the agent does not describe itself.
        direct: the agent may answer with a message and no task.
        extensions: the extensions of the agent.
        kind: the name of the agent's class, for error messages.
    """

    execute: Execute
    cancel_handler: Callable[[], CancelHandler | None]
    on_worker_lost: Callable[[], str]
    native_thread: Callable[[], bool]
    check_handler: Callable[[], None]
    describe: Callable[[], AgentCard] | None
    direct: bool
    extensions: Sequence[Extension | AgentExtension]
    kind: str

    def wrapped(self, execute: Execute, cancel: Callable[[CancelHandler, RequestContext], None]) -> AgentSpec:
        """A copy that runs `execute`, and whose cancel handler, if it has one, is called by ``cancel(handler, context)``."""

        def cancel_handler() -> CancelHandler | None:
            handler = self.cancel_handler()
            return None if handler is None else partial(cancel, handler)

        return replace(self, execute=execute, cancel_handler=cancel_handler)

    @classmethod
    def of(cls, agent: AgentExecutor) -> AgentSpec:
        """The spec of an `Agent` or of an `AgentExecutor`, with its optional members.

        Raises:
            TypeError: `agent` is a class instead of an instance, has no ``execute``, or can never have a handler.
        """
        kind = type(agent).__name__
        if isinstance(agent, type):
            raise TypeError(f"{agent.__name__} is a class: give an instance, {agent.__name__}(…)")
        if not callable(getattr(agent, "execute", None)):
            hint = "; to serve a function, decorate it with @agent.message of an Agent" if callable(agent) else ""
            raise TypeError(f"an app serves an Agent or an AgentExecutor, and a {kind} has no execute(context){hint}")
        if isinstance(agent, SpecifiesAgent):
            return agent.agent_spec()
        return cls(
            execute=lambda context: _execute(agent, context),
            cancel_handler=lambda: getattr(agent, "cancel", None),
            on_worker_lost=lambda: getattr(agent, "on_worker_lost", "fail"),
            native_thread=lambda: getattr(agent, "native_thread", False),
            check_handler=lambda: None,
            describe=getattr(agent, "describe", None),
            direct=bool(getattr(agent, "direct", False)),
            extensions=getattr(agent, "extensions", ()),
            kind=kind,
        )


def _execute(agent: AgentExecutor, context: RequestContext) -> Iterator[Event] | None:
    if getattr(agent, "exclusive", False):
        context.wait_for_turn()
    return agent.execute(context)
