"""Activates the extensions that a call requests, and calls their hooks for calls and for events of runs.

Unless an extension is required, a call that requests none is passed on unchanged. Extensions themselves are defined in
`a2a_sync.agent.extensions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from a2a_sync.agent.executor import Event, RequestContext
from a2a_sync.agent.extensions import Extension
from a2a_sync.agent.spec import AgentSpec, CancelHandler
from a2a_sync.bindings.headers import extension_headers
from a2a_sync.card import AgentExtension
from a2a_sync.concurrency.closing import closed_after
from a2a_sync.errors import ExtensionSupportRequiredError
from a2a_sync.operations import Call, Endpoint, RequestT, ResultT
from a2a_sync.types import JSON, SendMessageRequest


class Activation:
    """The extensions of one app. An extension with hooks replaces a declaration without hooks that has the same URI.

    Raises:
        ValueError: two extensions with hooks have the same URI.
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
        """The declarations of the extensions that the card lists."""
        return tuple(extension.declaration() for extension in self._known.values() if extension.listed)

    # -- calls --

    def around(self, endpoint: Endpoint) -> Endpoint:
        """Wrap `endpoint`, so that the extensions of a call are activated before the call is executed.

        The wrapper raises `ExtensionSupportRequiredError` for a message that does not request a required extension.
        """

        def activated(call: Call[RequestT, ResultT]) -> ResultT:
            context = call.context
            if context.extensions or self._required or not context.headers.keys().isdisjoint(self._headers):
                call = self._activated(call)
            return endpoint(call)

        return activated

    def _activated(self, call: Call[Any, Any]) -> Call[Any, Any]:
        """Activate the extensions that `call` requests and return the call after their `on_request` hooks.

        Raises:
            ExtensionSupportRequiredError: the call sends a message and does not request a required extension.
        """
        active = self._requested(call)
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

    def _requested(self, call: Call[Any, Any]) -> dict[str, JSON]:
        """The values of the extensions that `call` requests, by URI, without those that refuse."""
        asked, headers = call.context.extensions, call.context.headers
        active: dict[str, JSON] = {}
        for uri, extension in self._known.items():
            if uri in asked or any(header in headers for header in extension.headers):
                value = extension.activate(call)
                if value is not None and value is not False:
                    active[uri] = value
        return active

    def _check_required(self, active: dict[str, JSON], version: str) -> None:
        missing = [uri for uri in self._required if uri not in active]
        if missing:
            uris = ", ".join(missing)
            header = extension_headers(version)[0]
            raise ExtensionSupportRequiredError(
                f"This agent requires an extension that was not requested; send the header '{header}: {uris}'",
                metadata={"requiredExtensions": uris},
            )

    # -- runs --

    def with_event_hooks(self, spec: AgentSpec) -> AgentSpec:
        """A copy of `spec` whose events pass through the hooks of the extensions that are active for the run."""
        if not self._listening:
            return spec

        def execute(context: RequestContext) -> Iterator[Event] | None:
            hook = self._hook(context)
            if hook is None:
                return spec.execute(context)
            return _hooked(spec.execute(context.through(hook)), hook)

        def cancel(handler: CancelHandler, context: RequestContext) -> None:
            hook = self._hook(context)
            handler(context if hook is None else context.through(hook))

        return spec.wrapped(execute, cancel)

    def _hook(self, context: RequestContext) -> Callable[[Event], Event] | None:
        """The function that each event of this run passes through; None if no active extension has an event hook."""
        active = [self._listening[uri] for uri in context.extensions if uri in self._listening]
        if not active:
            return None

        def hook(event: Event) -> Event:
            for extension in active:
                event = extension.on_event(event, context)
            return event

        return hook


def _hooked(events: Iterator[Event] | None, hook: Callable[[Event], Event]) -> Iterator[Event]:
    with closed_after(events):
        for event in events or ():
            yield hook(event)
