"""Whose tasks a call means: the caller's own, or what the app's author says, so that tasks can be shared.

Stores keep tasks by tenant and owner, and what is another's does not exist for them. Sharing is therefore the same id for
several callers; nothing else in the house knows of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

from a2a_sync.operations import NAMED_MARK, OWNER_MARK, Call, Endpoint, Principal

#: Gives the owner of the tasks that a call means: an id in a namespace of its own, a caller as a `Principal`, or None for the
#: caller itself. May raise an `AgentError`.
OwnerResolver: TypeAlias = Callable[[Call], str | Principal | None]


def owned(owner: OwnerResolver, endpoint: Endpoint) -> Endpoint:
    """`endpoint`, for tasks of whom `owner` names. It is asked before each operation, on the thread of the request."""

    def of_owner(call: Call) -> Any:
        named = owner(call)
        if named is None:
            return endpoint(call)
        if isinstance(named, Principal):
            return endpoint(replace(call, context=replace(call.context, owner=named.id)))
        if not isinstance(named, str):
            raise TypeError(f"owner= gives the id of an owner, a Principal or None, not {type(named).__name__}")
        if OWNER_MARK in named or NAMED_MARK in named:
            raise ValueError("owner= gave an id with a control character that no id may have")
        return endpoint(replace(call, context=replace(call.context, owner=NAMED_MARK + named)))

    return of_owner
