"""`Agent`: an agent as one function with the attributes of its card.

Either subclass it and define ``handle_message``, or create an instance and decorate a function. An agent is an
`AgentExecutor`; `results` turns the result of the handler into events.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from a2a_sync.agent.dialogue import WaitsForAnswer
from a2a_sync.agent.executor import Event, RequestContext
from a2a_sync.agent.extensions import Extension
from a2a_sync.agent.inprocess import InProcessCalls
from a2a_sync.agent.results import ChunkStream, StreamingResult, final_events
from a2a_sync.agent.spec import AgentSpec, CancelHandler
from a2a_sync.card import AgentCard, AgentExtension, AgentProvider, Skills, as_skills
from a2a_sync.concurrency.closing import Closes
from a2a_sync.lazymodule import LazyModule
from a2a_sync.operations import Endpoint
from a2a_sync.types import Message

if TYPE_CHECKING:
    from a2a_sync.wsgi import app
else:
    app = LazyModule("a2a_sync.wsgi.app")

_Handler = TypeVar("_Handler", bound=Callable[..., Any])


class Agent(InProcessCalls, Closes):
    """An agent, declared by class attributes or by arguments of the same names.

    ``handle_message(message, context)`` runs on a worker thread, once per message; it may be ``async def`` or a
    generator. It returns text, a part, a list of parts, an `Artifact`, a dict or dataclass instance (the result),
    `InputRequired`, `AuthRequired`, `Rejected`, `Failed`, a `Message`, a `StreamingResult`, or None. An exception fails
    the task; its text is only logged unless it is a `PublicError` or `AgentError`.

    ``handle_cancel(context)`` is optional and may raise `TaskNotCancelableError` to refuse. With ``direct = True``, an
    agent that immediately answers with a `Message` creates no task. ``on_worker_lost`` is ``"fail"`` or ``"retry"``.
    ``native_thread = True`` runs the handler on a native thread under gevent, where the other handlers share one
    thread. Use it for long computations and for handlers that run their own event loop. ``async def`` handlers always
    run on a native thread. ``skills`` may be in short forms: see `create_agent_card`.

    ``agent.call("hello")`` and the other methods of local calls use a private app in the same process: see `start`.
    """

    name: str = ""
    description: str = ""
    version: str = "0.1.0"
    skills: Skills = ()
    input_modes: Sequence[str] = ("text/plain", "application/json")
    output_modes: Sequence[str] = ("text/plain", "application/json")
    extensions: Sequence[Extension | AgentExtension] = ()
    provider: AgentProvider | None = None
    documentation_url: str | None = None
    icon_url: str | None = None
    direct: bool = False
    on_worker_lost: str = "fail"
    native_thread: bool = False

    _on_message: Callable[..., Any] | None = None
    _on_cancel: Callable[..., Any] | None = None
    _private_app: app.A2AApp | None = None

    def __init__(self, name: str = "", **attributes: Any) -> None:
        """Set `attributes` of the class, including those that a subclass adds: ``Pricing(currency="EUR")``.

        Raises:
            TypeError: the class has no such attribute.
        """
        if name:
            self.name = name
        for key, value in attributes.items():
            self._set(key, value)

    def _set(self, key: str, value: Any) -> None:
        """Set an attribute that the class or a subclass declares; not a method or private attribute."""
        if key.startswith("_") or not hasattr(type(self), key) or callable(getattr(type(self), key)):
            raise TypeError(f"{type(self).__name__} has no attribute {key!r}")
        setattr(self, key, value)

    # -- the handlers --

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        """Answer `message`, on the thread of the run. Override it, or decorate a function with ``@agent.message``."""
        if self._on_message is None:
            raise self._no_handler()
        return self._on_message(message, context)

    def handle_cancel(self, context: RequestContext) -> Any:
        """Called before a task is canceled. Override it, or decorate a function with ``@agent.on_cancel``.

        It may be ``async def``. Its result is ignored; raising `TaskNotCancelableError` refuses the cancel.
        """
        return None if self._on_cancel is None else self._on_cancel(context)

    def message(self, handler: _Handler) -> _Handler:
        """Decorator for the function `handler(message, context)`, which answers messages.

        Raises:
            TypeError: `handler` does not take these two arguments.
        """
        _check_parameters(handler, "message, context")
        self._on_message = handler
        return handler

    def on_cancel(self, handler: _Handler) -> _Handler:
        """Decorator for the function `handler(context)`, which is called before a task is canceled and may refuse.

        Raises:
            TypeError: `handler` does not take this argument.
        """
        _check_parameters(handler, "context")
        self._on_cancel = handler
        return handler

    def check_handler(self, *, complete: bool = False) -> None:
        """Check that the agent has a handler.

        An instance of `Agent` itself is checked only if `complete`: until then a decorator may follow.

        Raises:
            TypeError: the agent has no handler.
        """
        own = type(self)
        if own is Agent and not complete:
            return
        overridden = own.handle_message is not Agent.handle_message or own.execute is not Agent.execute
        if not (overridden or self._on_message is not None or "handle_message" in vars(self)):
            raise self._no_handler()

    def _no_handler(self) -> TypeError:
        own = type(self)
        where = "a subclass of Agent" if own is Agent else f"class {own.__name__}"
        return TypeError(
            f"agent {self._display_name()!r} has no handler: define handle_message(self, message, context) in {where}, or"
            " decorate a function with @agent.message"
        )

    # -- the executor --

    def execute(self, context: RequestContext) -> Iterator[Event] | None:
        """Run the handler and turn its result into events, on the thread of the run."""
        try:
            return self._handle(context)
        except WaitsForAnswer:
            return None

    def _handle(self, context: RequestContext) -> Iterator[Event] | None:
        value = self.handle_message(context.message, context)
        if inspect.iscoroutine(value):
            value = _asynchronous_module().run_coroutine(value, context)
        if inspect.isasyncgen(value):
            value = _asynchronous_module().iterate(value, context)
        if isinstance(value, StreamingResult):
            ChunkStream(context).send(value.chunks)
        elif inspect.isgenerator(value):
            ChunkStream(context).send(value)
        elif isinstance(value, Message):
            return iter((value,))
        else:
            context.emit(*final_events(value, context))
        return None

    def agent_spec(self) -> AgentSpec:
        """The form in which an app runs the agent. Its cancel handler is `handle_cancel`; `cancel` is a local call.

        Raises:
            TypeError: the agent has no handler, and none can be added by a decorator, or one with other parameters.
        """
        self.check_handler()
        _check_parameters(self.handle_message, "message, context")
        return AgentSpec(
            execute=lambda context: self.execute(context),
            cancel_handler=self._cancel_handler,
            on_worker_lost=lambda: self.on_worker_lost,
            native_thread=lambda: self.native_thread,
            check_handler=lambda: self.check_handler(complete=True),
            describe=self.describe,
            direct=self.direct,
            extensions=self.extensions,
            kind=type(self).__name__,
        )

    def _cancel_handler(self) -> CancelHandler | None:
        """The function to call before a cancel; None if the agent has none, which saves its thread."""
        if self._on_cancel is None and type(self).handle_cancel is Agent.handle_cancel:
            return None
        return self._call_cancel_handler

    def _call_cancel_handler(self, context: RequestContext) -> None:
        asked = self.handle_cancel(context)
        if inspect.iscoroutine(asked):
            _asynchronous_module().run_coroutine(asked, context)

    # -- the card --

    def _display_name(self) -> str:
        return self.name or type(self).__name__

    def _doc(self) -> str:
        """The first paragraph of the subclass's own docstring."""
        doc = type(self).__dict__.get("__doc__") if type(self) is not Agent else None
        return inspect.cleandoc(doc or "").split("\n\n")[0].replace("\n", " ")

    def describe(self) -> AgentCard:
        """The card of this agent; the app that serves it adds the interfaces and capabilities."""
        return AgentCard(
            name=self._display_name(),
            description=self.description or self._doc(),
            version=self.version,
            skills=as_skills(self.skills),
            default_input_modes=self.input_modes,
            default_output_modes=self.output_modes,
            provider=self.provider,
            documentation_url=self.documentation_url,
            icon_url=self.icon_url,
        )

    # -- in its own process --

    def start(self, **options: Any) -> Self:
        """Start the private app of local calls, with `options` of `A2AApp`; without `start` the first call starts it.

        ``agent.start(store="sqlite:///tasks.db")`` persists the tasks. Options that `A2AApp` does not have are
        attributes of the agent, as in its constructor: ``agent.start(currency="EUR")``. Use it with ``with``, or call
        `close`.

        Raises:
            RuntimeError: the app is running already.
            TypeError: neither the app nor the agent has such an option.
        """
        from a2a_sync.wsgi.app import A2AApp

        for key in options.keys() - inspect.signature(A2AApp).parameters.keys():
            self._set(key, options.pop(key))
        if self._private_app is None:
            made = A2AApp(self, **options)
            if self._set_once("_private_app", made) is made:
                return self
            made.close(0)
        raise RuntimeError(f"agent {self._display_name()!r} has been started; close() it first")

    def endpoint(self) -> Endpoint:
        """The endpoint of the private app.

        Raises:
            TypeError: the agent has no handler.
        """
        self.check_handler(complete=True)
        return self._app().endpoint()

    def agent_card(self) -> AgentCard:
        """The card of the private app."""
        return self._app().agent_card()

    def _app(self) -> app.A2AApp:
        app = self._private_app
        if app is None:
            from a2a_sync.wsgi.app import A2AApp

            made = A2AApp(self)
            app = self._set_once("_private_app", made)
            if app is not made:
                made.close(0)
        return app

    def close(self, timeout: float = 5.0) -> None:
        """Close the private app, if there is one; its runs have `timeout` seconds to end."""
        app = vars(self).pop("_private_app", None)
        if app is not None:
            app.close(timeout)
        self._close_client()


def _asynchronous_module() -> ModuleType:
    """The module that runs coroutines. It imports asyncio, which most agents do not need."""
    from a2a_sync.agent import asynchronous

    return asynchronous


def _check_parameters(handler: Callable[..., object], names: str) -> None:
    """Raises `TypeError` if `handler` cannot be called with arguments of these names, by position."""
    try:
        signature = inspect.signature(handler)
    except ValueError:  # a function that is not written in Python
        return
    try:
        signature.bind(*names.split(", "))
    except TypeError as error:
        name = getattr(handler, "__qualname__", type(handler).__name__)
        raise TypeError(
            f"a handler is called with ({names}), and {name}{signature} does not accept that: {error}"
        ) from None
