"""ASGI: Starlette, FastAPI with middleware, and the bare application."""

from __future__ import annotations

import os
from typing import Any

from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Mount

from a2a_sync.auth import MTLSAuth
from a2a_sync.integrations.asgi import ASGIApp
from tests.hosts.sites import PREFIX, THREADS, make_app


def user(scope: Any) -> str | None:
    return dict(scope["headers"]).get(b"x-user", b"").decode() or None


def bridge() -> ASGIApp:
    return ASGIApp(make_app(), threads=THREADS, principal=user)


starlette = Starlette(routes=[Mount(PREFIX, bridge())], middleware=[Middleware(GZipMiddleware)])

fastapi = FastAPI()
fastapi.mount(PREFIX, bridge())


@fastapi.middleware("http")
async def named(request: Request, call_next: Any) -> Any:
    """A middleware that wraps the response, streams included."""
    answer = await call_next(request)
    answer.headers["X-Served-By"] = "tests"
    return answer


alone = bridge()
#: For a stopping server: tasks are stored, and runs have a short grace time.
stopping = ASGIApp(make_app(store=os.environ.get("STORE")), grace=0.2)
#: Callers are named by a proxy at 127.0.0.1.
proxied_app = make_app(auth=MTLSAuth(header="X-Client-Subject", proxies=["127.0.0.1"]))
proxied = ASGIApp(proxied_app)
