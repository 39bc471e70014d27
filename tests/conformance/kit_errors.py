"""The tests of the official kits that contradict the specification, which this project follows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KitError:
    """Tests of a kit that a correct agent does not pass.

    `tests` are their names in the kit's report, `runs` the affected runs, `section` the section of the specification (in the kit's
    version), `why` the reason. `timing`: the result depends on the agent's speed, so it is not compared.
    """

    tests: tuple[str, ...]
    runs: tuple[str, ...]
    section: str
    why: str
    timing: bool = False


_NEW = ("everything", "everything, all that the card can promise")
_FULL = _NEW[1:]
_GRPC = ("gRPC", "gRPC, all that the card can promise")
_BINDINGS = ("jsonrpc", "http_json")


_REQUIREMENT = "compatibility.core_operations.test_requirements.test_must_requirement"


def _requirement(name: str) -> tuple[str, ...]:
    """A requirement of the kit of 1.0, over JSON-RPC and HTTP+JSON."""
    return tuple(f"{_REQUIREMENT}[{name}-{binding}]" for binding in _BINDINGS)


def _over_grpc(name: str) -> tuple[str, ...]:
    """The same over gRPC."""
    return (f"{_REQUIREMENT}[{name}-grpc]",)


def _capabilities(*bindings: str, full: bool = True, plain: bool = True) -> tuple[str, ...]:
    """The runs of a category over these bindings."""
    names = [f"capabilities, {binding}" for binding in bindings]
    return (*(names if plain else ()), *([f"{name}, all that the card can promise" for name in names] if full else ()))


KIT_ERRORS: tuple[KitError, ...] = (
    KitError(
        ("compatibility.agent_card.test_agent_card_caching.TestAgentCardLastModified.test_last_modified_present",),
        (*_NEW, *_GRPC),
        "1.0, 8.6.1",
        "`Last-Modified` is something that a server may send. The test fails where it is not sent.",
    ),
    KitError(
        _requirement("CORE-SEND-003"),
        _NEW,
        "1.0, 3.1.1",
        "A part of a media type that the agent does not take is refused with ContentTypeNotSupportedError, as the name of the"
        " test says too. What it asks for is a success.",
    ),
    KitError(
        _over_grpc("CORE-SEND-003"),
        _GRPC,
        "1.0, 3.1.1",
        "Over gRPC: A part of a media type that the agent does not take is refused with ContentTypeNotSupportedError, as the name of the"
        " test says too. What it asks for is a success.",
    ),
    KitError(
        _requirement("CARD-EXT-001"),
        _FULL,
        "1.0, 13.3",
        "The extended card needs authentication, as the name of the test says too. It asks without, and for a success.",
    ),
    KitError(
        _over_grpc("CARD-EXT-001"),
        _GRPC[1:],
        "1.0, 13.3",
        "Over gRPC: The extended card needs authentication, as the name of the test says too. It asks without, and for a success.",
    ),
    KitError(
        _requirement("CARD-EXT-002"),
        _FULL,
        "1.0, 3.1.11",
        "The test is one of the error for a card that was promised and is not there. It asks every agent that promises one,"
        " without authentication, and for a success.",
    ),
    KitError(
        _over_grpc("CARD-EXT-002"),
        _GRPC[1:],
        "1.0, 3.1.11",
        "Over gRPC: The test is one of the error for a card that was promised and is not there. It asks every agent that promises one,"
        " without authentication, and for a success.",
    ),
    KitError(
        ("compatibility.agent_card.test_agent_card.TestAgentCardStructure.test_agent_card_validates_against_schema",),
        (*_NEW, *_GRPC),
        "1.0, 5.7",
        "An app that serves both versions adds the members of 0.3 to its card, which receivers of 1.0 are to ignore. The kit's"
        ' schema permits no member that it does not know. With `protocol_versions=("1.0",)` the test passes.',
    ),
    KitError(
        (
            "compatibility.core_operations.test_error_handling.TestRestErrorStructure.test_error_uses_aip193_format",
            "compatibility.http_json.test_problem_details.TestAIP193ErrorFormat.test_error_content_type",
        ),
        _NEW,
        "1.0, 11.1",
        "The media type of answers, errors included, is `application/a2a+json` since release 1.0.1 of the specification. The kit has"
        ' that of 1.0.0, which was `application/json`. With `HTTPOptions(response_media_type="application/json")` the tests pass.',
    ),
    KitError(
        (
            "compatibility.http_json.test_http_status.TestHttpJsonStatusCodes.test_content_type_not_supported_returns_415",
        ),
        _NEW,
        "1.0, 5.4",
        "The HTTP status of ContentTypeNotSupportedError is 400 since release 1.0.1 of the specification. The kit has that of"
        " 1.0.0, which was 415.",
    ),
    KitError(
        ("compatibility.grpc.test_status_codes.TestGrpcStatusCodes.test_push_not_supported_returns_unimplemented",),
        _GRPC[:1],
        "1.0, 5.4",
        "The status of PushNotificationNotSupportedError is FAILED_PRECONDITION since release 1.0.1 of the specification. The kit"
        " has that of 1.0.0, which was UNIMPLEMENTED.",
    ),
    KitError(
        ("compatibility.grpc.test_status_codes.TestGrpcStatusCodes.test_version_not_supported_returns_unimplemented",),
        _GRPC,
        "1.0, 5.4",
        "The status of VersionNotSupportedError is FAILED_PRECONDITION since release 1.0.1 of the specification. The kit has that"
        " of 1.0.0, which was UNIMPLEMENTED.",
    ),
    KitError(
        ("optional.quality.test_task_state_quality.test_task_state_transitions",),
        ("quality, JSON-RPC",),
        "0.3, 6.3 and 7.1",
        "A task may need input from its first message on, and a server may answer a send that does not mention `blocking` when"
        " the task pauses. The test wants it to be submitted or working still.",
    ),
    KitError(
        ("optional.quality.test_task_state_quality.test_task_state_transitions",),
        ("quality, HTTP+JSON", "quality, gRPC"),
        "0.3, 6.3 and 7.1",
        "A send without `blocking` is answered at once over these bindings. The test passes if the agent has not yet asked for input"
        " when the task is read, and fails if it has; both are correct.",
        timing=True,
    ),
    KitError(
        ("optional.capabilities.test_push_notification_config_methods.test_get_push_notification_config",),
        _capabilities("JSON-RPC", plain=False),
        "0.3, 7.6",
        "The test sets a configuration without an id and then asks for one with the id `default`, which does not exist.",
    ),
    KitError(
        ("optional.capabilities.test_message_send_capabilities.test_message_send_continue_with_contextid",),
        _capabilities("HTTP+JSON"),
        "0.3, 6.1",
        "The member is `contextId`; the kit's client of HTTP+JSON looks for `context_id` alone, finds none, and sends one that it"
        " has made up together with the id of the task, whose context is another one.",
    ),
    KitError(
        ("optional.capabilities.test_transport_security.test_https_url_in_agent_card",),
        _capabilities("JSON-RPC", "HTTP+JSON", "gRPC"),
        "0.3, 4.1",
        "HTTPS is for production. The kit runs against loopback without it, and says itself that this test fails there.",
    ),
)
