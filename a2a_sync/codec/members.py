"""Members that 1.0 and both dialects of 0.3 have in common, each list written once.

A version passes the kinds and members that it spells in its own way: states, roles, parts, metadata.
"""

from __future__ import annotations

from a2a_sync import card as c
from a2a_sync.codec.fields import FLAG, INT32, MOMENT, STRUCT, TEXT, Kind, many, mapping
from a2a_sync.codec.records import Member, Record, optional, required

TEXTS = many(TEXT)
METADATA = Member("metadata", STRUCT)
EXTENSIONS = Member("extensions", TEXTS)
DESCRIPTION = Member("description", TEXT)
TASK_ID = required("task_id", TEXT)
PAGE = (Member("page_size", INT32), Member("page_token", TEXT))


def message(role: Kind, parts: Kind, references: Kind, parts_name: str = "") -> tuple[Member, ...]:
    """`parts_name` is the name of the parts on the wire, if it is another one."""
    return (
        required("message_id", TEXT),
        Member("context_id", TEXT),
        Member("task_id", TEXT),
        required("role", role),
        required("parts", parts, parts_name),
        METADATA,
        EXTENSIONS,
        Member("reference_task_ids", references),
    )


def artifact(parts: Kind) -> tuple[Member, ...]:
    return (
        required("artifact_id", TEXT),
        Member("name", TEXT),
        DESCRIPTION,
        required("parts", parts),
        METADATA,
        EXTENSIONS,
    )


def status(state: Kind, message: Kind, *message_names: str) -> tuple[Member, ...]:
    """`message_names` are further names under which the message is read."""
    return (
        required("state", state),
        Member("message", message, aliases=message_names),
        Member("timestamp", MOMENT),
    )


def task(status: Kind, artifact: Kind, message: Kind, context_id: Member) -> tuple[Member, ...]:
    return (
        required("id", TEXT),
        context_id,
        required("status", status),
        Member("artifacts", many(artifact)),
        Member("history", many(message)),
        METADATA,
    )


def status_update(status: Kind) -> tuple[Member, ...]:
    return required("task_id", TEXT), required("context_id", TEXT), required("status", status), METADATA


def artifact_update(artifact: Kind) -> tuple[Member, ...]:
    return (
        required("task_id", TEXT),
        required("context_id", TEXT),
        required("artifact", artifact),
        Member("append", FLAG),
        Member("last_chunk", FLAG),
        METADATA,
    )


def task_page(task: Kind) -> tuple[Member, ...]:
    return (
        Member("tasks", many(task), always=True),
        Member("next_page_token", TEXT, always=True),
        Member("page_size", INT32, always=True),
        Member("total_size", INT32, always=True),
    )


def task_query(state: Kind, timestamp: Kind) -> tuple[Member, ...]:
    """The members of a ListTasks request."""
    return (
        Member("context_id", TEXT),
        Member("status", state),
        optional("page_size", INT32),
        Member("page_token", TEXT),
        optional("history_length", INT32),
        Member("status_timestamp_after", timestamp),
        optional("include_artifacts", FLAG),
    )


def push_configs(config: Kind) -> tuple[Member, ...]:
    return Member("configs", many(config)), Member("next_page_token", TEXT)


def send_request(message: Kind, configuration: Kind, *message_names: str) -> tuple[Member, ...]:
    return required("message", message, "", *message_names), Member("configuration", configuration), METADATA


AUTHORIZATION_URL = required("authorization_url", TEXT)
TOKEN_URL = required("token_url", TEXT)
REFRESH_URL = Member("refresh_url", TEXT)
SCOPES = Member("scopes", mapping(TEXT), always=True)  # required, and may be empty
HTTP_SCHEME = (DESCRIPTION, required("scheme", TEXT), Member("bearer_format", TEXT))
OPEN_ID_SCHEME = (DESCRIPTION, required("open_id_connect_url", TEXT))


def api_key_scheme(location: str = "") -> tuple[Member, ...]:
    """`location` is the name of that member on the wire, if it is another one."""
    return DESCRIPTION, required("location", TEXT, location), required("name", TEXT)


def oauth2_scheme(flow: Kind) -> tuple[Member, ...]:
    return DESCRIPTION, required("flow", flow, "flows"), Member("oauth2_metadata_url", TEXT)


def skill(security: Member) -> tuple[Member, ...]:
    return (
        required("id", TEXT),
        required("name", TEXT),
        required("description", TEXT),
        required("tags", TEXTS),
        Member("examples", TEXTS),
        Member("input_modes", TEXTS),
        Member("output_modes", TEXTS),
        security,
    )


def card(capabilities: Kind, scheme: Kind, security: Member, skill: Kind, *interfaces: Member) -> tuple[Member, ...]:
    """`interfaces` are the members with the addresses, if they are not at the top level of the card."""
    return (
        required("name", TEXT),
        required("description", TEXT),
        *interfaces,
        Member("provider", AGENT_PROVIDER),
        required("version", TEXT),
        optional("documentation_url", TEXT),
        required("capabilities", capabilities),
        Member("security_schemes", mapping(scheme)),
        security,
        required("default_input_modes", TEXTS),
        required("default_output_modes", TEXTS),
        required("skills", many(skill)),
        Member("signatures", many(AGENT_CARD_SIGNATURE)),
        optional("icon_url", TEXT),
    )


AGENT_PROVIDER = Record(c.AgentProvider, required("url", TEXT), required("organization", TEXT))
AGENT_EXTENSION = Record(
    c.AgentExtension, required("uri", TEXT), DESCRIPTION, Member("required", FLAG), Member("params", STRUCT)
)
AGENT_CARD_SIGNATURE = Record(
    c.AgentCardSignature, required("protected", TEXT), required("signature", TEXT), Member("header", STRUCT)
)
#: The types of a card that all versions write alike.
CARD_RECORDS = (AGENT_PROVIDER, AGENT_EXTENSION, AGENT_CARD_SIGNATURE)
