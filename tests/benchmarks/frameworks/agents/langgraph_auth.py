"""The callers of ``langgraph dev``."""

from __future__ import annotations

from langgraph_sdk import Auth

from tests.benchmarks.frameworks.work import CALLER, TOKEN

auth = Auth()


@auth.authenticate
async def authenticate(authorization: str | None) -> str:
    if authorization != f"Bearer {TOKEN}":
        raise Auth.exceptions.HTTPException(status_code=401)
    return CALLER
