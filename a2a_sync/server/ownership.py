"""The owner of the tasks of a call: its caller, or the owner that the app's author returns, so that tasks can be shared.

Stores hold tasks by tenant and owner, and the tasks of other owners do not exist for a call. Callers share tasks by having
the same owner; no other module is concerned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from a2a_sync.operations import (
    NAMED_MARK,
    OWNER_MARK,
    AnyCall,
    Call,
    Endpoint,
    Principal,
    RequestT,
    ResultT,
    owner_of,
    quota_owner,
)

#: Returns the owner of the tasks of a call: an id in a namespace of its own, a caller as a `Principal`, or None for the
#: caller itself. May raise an `AgentError`.
OwnerResolver: TypeAlias = Callable[[AnyCall], str | Principal | None]


def scope_to_owner(owner: OwnerResolver, endpoint: Endpoint) -> Endpoint:
    """Wrap `endpoint`: its tasks are those of the owner that `owner` returns, on the thread of the request."""

    def of_owner(call: Call[RequestT, ResultT]) -> ResultT:
        named = owner(call)
        if named is None:
            return endpoint(_found(call))
        if not isinstance(named, str | Principal):
            raise TypeError(f"owner= returns the id of an owner, a Principal or None, not {type(named).__name__}")
        id_ = named if isinstance(named, str) else named.id
        if OWNER_MARK in id_ or NAMED_MARK in id_ or "\0" in id_:
            raise ValueError("owner= returned an id with a control character that no id may have")
        if isinstance(named, Principal) and not id_:
            raise ValueError("owner= returned a principal without an id, whose tasks would be those without an owner")
        id_ = NAMED_MARK + id_ if isinstance(named, str) else id_
        return endpoint(_found(replace(call, context=replace(call.context, owner=id_))))

    return of_owner


def _found(call: Call[RequestT, ResultT]) -> Call[RequestT, ResultT]:
    """`call`, whose transport counts for its owner from now on."""
    if call.context.owner_found is not None:
        call.context.owner_found(quota_owner(owner_of(call.context)))
    return call
