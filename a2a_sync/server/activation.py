"""Which extensions a call activates, and what their hooks make of it and of the events of its run.

The server's half only; what an extension is, is said in `extensions`. A call that asks for none passes through untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from a2a_sync.agent.executor import Event, RequestContext, as_executor
from a2a_sync.agent.extensions import Extension
from a2a_sync.bindings.headers import extension_headers
from a2a_sync.card import AgentExtension
from a2a_sync.errors import ExtensionSupportRequiredError
from a2a_sync.operations import Call, Endpoint
from a2a_sync.types import JSON, SendMessageRequest


class Activation:
    """The extensions of one app; of two with the same URI the first that has hooks counts.

    Raises:
        ValueError: two with hooks have the same URI.
    """

    def __init__(self, extensions: Iterable[Extension | AgentExtension]) -> None:
        self._known: dict[str, Extension] = {}
        for declared in extensions:
            extension = Extension.of(declared)
            before = self._known.get(extension.uri)
            if before is not None and type(before) is not Extension and type(extension) is not Extension:
                raise ValueError(f"two extensions have the URI {extension.uri}")
            if before is None or type(before) is Extension:
                self._known[extension.uri] = extension
        self._required = tuple(uri for uri, extension in self._known.items() if extension.required)
        self._headers = {header for extension in self._known.values() for header in extension.headers}
        self._listening = {
            uri: extension
            for uri, extension in self._known.items()
            if type(extension).on_event is not Extension.on_event
        }

    @property
    def declared(self) -> tuple[AgentExtension, ...]:
        """What the card says of them."""
        return tuple(extension.declaration() for extension in self._known.values() if extension.listed)

    # -- calls --

    def around(self, endpoint: Endpoint) -> Endpoint:
        """`endpoint`, for calls whose extensions are activated first."""

        def activated(call: Call) -> Any:
            context = call.context
            if context.extensions or self._required or not context.headers.keys().isdisjoint(self._headers):
                call = self._activated(call)
            return endpoint(call)

        return activated

    def _activated(self, call: Call) -> Call:
        """`call`, with what it has activated, after the hooks of these.

        Raises:
            ExtensionSupportRequiredError: it sends a message, and leaves out what is required.
        """
        asked, headers = call.context.extensions, call.context.headers
        active: dict[str, JSON] = {}
        for uri, extension in self._known.items():
            if uri in asked or any(header in headers for header in extension.headers):
                value = extension.activate(call)
                if value is not None and value is not False:
                    active[uri] = value
        if call.operation.request is SendMessageRequest:
            self._check_required(active, call.context.version)
        if not active:
            return call
        call = replace(call, context=replace(call.context, activated=active))
        if call.context.answer_headers is not None:
            call.context.answer_headers[extension_headers(call.context.version)[0]] = ", ".join(active)
        for uri in active:
            call = self._known[uri].on_request(call)
        return call

    def _check_required(self, active: dict[str, JSON], version: str) -> None:
        missing = [uri for uri in self._required if uri not in active]
        if missing:
            uris = ", ".join(missing)
            header = extension_headers(version)[0]
            raise ExtensionSupportRequiredError(
                f"This agent requires an extension that was not asked for; send the header '{header}: {uris}'",
                metadata={"requiredExtensions": uris},
            )

    # -- runs --

    def within(self, agent: Any) -> Any:
        """What runs for `agent`, its events going through the hooks of the extensions that are active for each run."""
        executor = as_executor(agent)
        return _Extended(executor, self._listening) if self._listening else executor


class _Extended:
    """An executor like the one it is made from, but for its events."""

    def __init__(self, executor: Any, listening: dict[str, Extension]) -> None:
        self._executor = executor
        self._listening = listening

    def execute(self, context: RequestContext) -> Iterator[Event] | None:
        hook = self._hook(context)
        if hook is None:
            events: Iterator[Event] | None = self._executor.execute(context)
            return events
        return _hooked(self._executor.execute(context.through(hook)), hook)

    @property
    def cancel(self) -> Callable[[RequestContext], None] | None:
        handler: Callable[[RequestContext], None] | None = getattr(self._executor, "cancel", None)
        if handler is None:
            return None

        def hooked(context: RequestContext) -> None:
            hook = self._hook(context)
            handler(context if hook is None else context.through(hook))

        return hooked

    def _hook(self, context: RequestContext) -> Callable[[Event], Event] | None:
        """What an event of this run goes through; None: nothing."""
        active = [self._listening[uri] for uri in context.extensions if uri in self._listening]
        if not active:
            return None

        def hook(event: Event) -> Event:
            for extension in active:
                event = extension.on_event(event, context)
            return event

        return hook

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


def _hooked(events: Iterator[Event] | None, hook: Callable[[Event], Event]) -> Iterator[Event] | None:
    return None if events is None else _each(events, hook)


def _each(events: Iterator[Event], hook: Callable[[Event], Event]) -> Iterator[Event]:
    try:
        for event in events:
            yield hook(event)
    finally:
        close = getattr(events, "close", None)
        if close is not None:
            close()
