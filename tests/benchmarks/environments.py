"""The virtual environments of the compared libraries, one for each peer, created on first use.

They are in `.venv-bench/` at the root of the repository, which git ignores; delete it to install newer versions.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

HOME = Path(__file__).parents[2] / ".venv-bench"

#: The packages of each environment. This library and the bare server use the running interpreter.
PEERS = {
    "sdk": ("a2a-sdk[grpc,http-server,sqlite]", "uvicorn"),
    "fasta": ("fasta2a", "uvicorn"),
}


def python(name: str) -> str:
    """The interpreter of an environment, which is created if it does not exist."""
    if name == "ours":
        return sys.executable
    folder = HOME / name
    interpreter = folder / "bin" / "python"
    if not (folder / "complete").exists():
        print(f"setting up {', '.join(PEERS[name])} …", file=sys.stderr, flush=True)
        HOME.mkdir(exist_ok=True)
        (HOME / ".gitignore").write_text("*\n")
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([interpreter, "-m", "pip", "install", "--quiet", *PEERS[name]], check=True, timeout=600)
        (folder / "complete").touch()
    return str(interpreter)


def versions() -> str:
    """The compared versions, in one line."""
    wanted = {"ours": "gunicorn", "sdk": "a2a-sdk", "fasta": "fasta2a"}
    described = [f"CPython {sys.version.split()[0]}"]
    for name, package in wanted.items():
        code = f"from importlib.metadata import version; print('{package}', version('{package}'))"
        described.append(
            subprocess.run([python(name), "-c", code], check=True, capture_output=True, text=True).stdout.strip()
        )
    return ", ".join(described)
