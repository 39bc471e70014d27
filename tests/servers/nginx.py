"""nginx on loopback as a proxy of a server under test::

with nginx(folder, "location / { proxy_pass http://127.0.0.1:8000; }") as proxy: ...
"""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.live import HOST, LiveServer, free_port, live_server

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
OPENSSL = shutil.which("openssl")

_CONFIGURATION = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{servers}
}}
"""


def needs_nginx(*programs: str | None) -> pytest.MarkDecorator:
    """Skip a test if nginx is not installed; in CI, which installs it, the test fails instead."""
    missing = NGINX is None or None in programs
    reason = "nginx or openssl is not installed (on Debian: apt-get install nginx-light openssl)"
    return pytest.mark.skipif(missing and "CI" not in os.environ, reason=reason)


@contextmanager
def nginx(folder: Path, locations: str, *, certificate: Path | None = None) -> Iterator[LiveServer]:
    """Run one nginx server with these locations, over TLS if a certificate is given; its URL then has the host ``localhost``."""
    port = free_port()
    listen = f"listen {HOST}:{port}{' ssl' if certificate else ''};"
    if certificate is not None:
        listen += f" ssl_certificate {certificate}; ssl_certificate_key {certificate};"
    with nginx_with(folder, f"server {{ {listen} {locations} }}", port) as server:
        if certificate is not None:
            server.url = f"https://localhost:{port}"
        yield server


@contextmanager
def nginx_with(folder: Path, servers: str, port: int) -> Iterator[LiveServer]:
    """Run nginx with whole ``server`` blocks, one of which listens on `port`."""
    assert NGINX is not None, "nginx is not installed"
    configuration = folder / "nginx.conf"
    configuration.write_text(_CONFIGURATION.format(folder=folder, servers=servers))
    command = [NGINX, "-e", "stderr", "-p", str(folder), "-c", str(configuration)]
    with live_server(command, f"http://{HOST}:{port}") as server:
        yield server


def make_certificate(folder: Path) -> Path:
    """Create a self-signed certificate for ``localhost`` with its key, in one file."""
    assert OPENSSL is not None, "openssl is not installed"
    key, certificate, both = folder / "key.pem", folder / "certificate.pem", folder / "both.pem"
    command = [OPENSSL, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    ssl.create_default_context(cafile=str(both))
    return both
