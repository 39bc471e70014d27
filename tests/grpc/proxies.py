"""nginx in front of a gRPC server, with the settings of the documentation."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.engine import eventually
from tests.live import free_port
from tests.servers.test_commands import TIMEOUT

NGINX = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{}}
http {{
    access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{
        listen 127.0.0.1:{port} http2;
        location / {{ grpc_pass grpc://{target}; grpc_read_timeout 1h; grpc_send_timeout 1h; client_max_body_size 0; }}
    }}
}}
"""


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT).close()
    except ConnectionRefusedError:
        return False
    return True


@contextmanager
def nginx(folder: Path, target: int) -> Iterator[int]:
    """Run it for the server at the port `target`; yields its own port."""
    port = free_port()
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port, target=f"127.0.0.1:{target}"))
    # No shell, and a fixed command.
    process = subprocess.Popen(["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder)])
    try:
        eventually(lambda: accepts(port), f"nginx: {folder / 'error.log'}", seconds=TIMEOUT)
        yield port
    finally:
        process.terminate()
        process.wait(TIMEOUT)
