"""Extensions (spec 4.6): features beyond the protocol, for calls whose client requests them.

`Extension` is the base with its hooks, `Timestamps` an example. `server.activation` decides which extensions are active
for a call and calls the hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from a2a_sync.card import AgentExtension
from a2a_sync.lazymodule import LazyModule
from a2a_sync.lifecycle import LogEvent
from a2a_sync.operations import AnyCall
from a2a_sync.types import (
    JSON,
    Artifact,
    Message,
    SendMessageRequest,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)

if TYPE_CHECKING:
    from a2a_sync.agent import executor
else:
    executor = LazyModule("a2a_sync.agent.executor")


class Extension:
    """One extension, declared by class attributes or by arguments.

    The hooks are optional; a handler may implement the extension instead.

    It is active for calls that request exactly its `uri`. Active extensions are listed in `RequestContext.extensions`
    and in a header of the response. Several threads may call the hooks at once, each for its own call or run.

    Parameters:
        uri: identifies the extension and its version. Printable ASCII without commas and spaces.
        description: the description in the card.
        required: whether messages that do not request it are refused with `ExtensionSupportRequiredError`.
        params: the parameters in the card.

    Raises:
        ValueError: `uri` is empty or has other characters.
    """

    uri: str = ""
    description: str = ""
    required: bool = False
    params: Mapping[str, JSON] = {}
    #: Names, in lower case, of request headers that request the extension as its URI does.
    headers: tuple[str, ...] = ()
    #: Whether the card lists it.
    listed: bool = True

    def __init__(
        self,
        uri: str = "",
        *,
        description: str = "",
        required: bool | None = None,
        params: Mapping[str, JSON] | None = None,
    ) -> None:
        self.uri = uri or self.uri
        self.description = description or self.description
        self.required = self.required if required is None else required
        self.params = self.params if params is None else params
        if not self.uri.isascii() or not self.uri.isprintable() or not self.uri or set(self.uri) & {",", " "}:
            raise ValueError(f"the URI of an extension is printable ASCII without commas and blanks, not {self.uri!r}")

    @classmethod
    def of(cls, declared: Extension | AgentExtension) -> Extension:
        """`declared` itself if it is an `Extension`, else an extension without hooks with its values."""
        if isinstance(declared, Extension):
            return declared
        return Extension(
            declared.uri, description=declared.description, required=declared.required, params=declared.params
        )

    def declaration(self) -> AgentExtension:
        """The declaration of the extension in the card."""
        return AgentExtension(
            uri=self.uri, description=self.description, required=self.required, params=dict(self.params)
        )

    # -- hooks --

    def activate(self, call: AnyCall) -> JSON:
        """Called for each call that requests this extension, on the thread of the request.

        The result becomes the value in `RequestContext.extensions` and is stored with the run; None and False leave the
        extension inactive.

        Raises:
            AgentError: the call is refused.
        """
        return True

    def on_request(self, call: AnyCall) -> AnyCall:
        """Return `call`, changed or not.

        Called for every operation, on the thread of the request, before it is executed.

        Raises:
            AgentError: the call is refused.
        """
        return call

    def on_event(self, event: LogEvent, context: executor.RequestContext) -> LogEvent:
        """Return `event`, changed or not.

        Called for runs with this extension active, on the thread that emits the event.

        The hook receives each event that the agent emits or yields, and those made from its result, before they are
        checked and stored. An exception has the effect of one raised by the agent.
        """
        return event


_Stamped = TypeVar("_Stamped", Message, Artifact)


class Timestamps(Extension):
    """Adds the time of creation to the metadata of messages and artifacts: the timestamp extension of the A2A samples.

    Client messages without a time get the time of their arrival. `now` returns the current time, with its time zone.
    """

    uri = "https://github.com/a2aproject/a2a-samples/extensions/timestamp/v1"
    description = "Adds the time at which they were made to messages and artifacts"
    #: The member of the metadata; its value is a time in ISO 8601.
    member = "github.com/a2aproject/a2a-samples/extensions/timestamp/v1/timestamp"

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC), *, required: bool = False) -> None:
        super().__init__(required=required)
        self._now = now

    def on_request(self, call: AnyCall) -> AnyCall:
        request = call.request
        if not isinstance(request, SendMessageRequest):
            return call
        return replace(call, request=replace(request, message=self._stamped(request.message)))

    def on_event(self, event: LogEvent, context: executor.RequestContext) -> LogEvent:
        if isinstance(event, Message):
            return self._stamped(event)
        if isinstance(event, TaskArtifactUpdateEvent):
            # Later chunks keep the time of the first one.
            return event if event.append else replace(event, artifact=self._stamped(event.artifact))
        if isinstance(event, TaskStatusUpdateEvent) and event.status.message is not None:
            return replace(event, status=replace(event.status, message=self._stamped(event.status.message)))
        return event

    def _stamped(self, item: _Stamped) -> _Stamped:
        if self.member in item.metadata:
            return item
        time = self._now().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        extensions = item.extensions if self.uri in item.extensions else (*item.extensions, self.uri)
        return replace(item, metadata={**item.metadata, self.member: time}, extensions=extensions)
