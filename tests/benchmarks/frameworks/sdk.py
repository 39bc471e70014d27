"""What servers on a2a-sdk, of protocol 0.3 or 1.0, are configured with: a task store in a file, and names of callers."""

from __future__ import annotations

from typing import Any

from a2a.server.tasks import DatabaseTaskStore, InMemoryTaskStore, TaskStore
from sqlalchemy.ext.asyncio import create_async_engine
from starlette.authentication import AuthCredentials, AuthenticationBackend, SimpleUser
from starlette.middleware.authentication import AuthenticationMiddleware

from tests.benchmarks.frameworks.work import CALLER, FOLDER, TOKEN


def task_store(kind: str) -> TaskStore:
    if kind == "speed":
        return InMemoryTaskStore()
    return DatabaseTaskStore(engine=create_async_engine(f"sqlite+aiosqlite:///{FOLDER}/theirs.db"))


class _Tokens(AuthenticationBackend):
    async def authenticate(self, conn: Any) -> Any:
        if conn.headers.get("authorization") == f"Bearer {TOKEN}":
            return AuthCredentials(), SimpleUser(CALLER)
        return None


def with_callers(app: Any) -> Any:
    """The application behind Starlette's middleware, which names the callers."""
    app.add_middleware(AuthenticationMiddleware, backend=_Tokens())
    return app
