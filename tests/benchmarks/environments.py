"""The virtual environments of the compared libraries, one for each peer, created on first use.

They are in `.venv-bench/` at the root of the repository, which git ignores; delete it to install newer versions.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOME = ROOT / ".venv-bench"

#: The packages of each environment. This library and the bare server use the running interpreter.
PEERS = {
    "sdk": ("a2a-sdk[grpc,http-server,postgresql,sqlite]", "uvicorn"),
    "fasta": ("fasta2a", "uvicorn"),
    # A framework with its own A2A server and with this library's bridge: `tests.benchmarks.frameworks`.
    "pydantic_ai": ("-e", f"{ROOT}[pydantic-ai]", "fasta2a[pydantic-ai]", "uvicorn"),
    "strands": ("-e", f"{ROOT}[strands]", "strands-agents[a2a]", "aiosqlite"),
    "adk": ("-e", f"{ROOT}[adk]", "google-adk[a2a]", "a2a-sdk[http-server,sqlite]", "uvicorn"),
    "agent_framework": (
        "-e",
        f"{ROOT}[agent-framework]",
        # There are only versions that are no releases.
        "agent-framework-a2a>=1.0.0b0",
        "a2a-sdk[http-server,sqlite]",
        "uvicorn",
    ),
    "crewai": ("-e", f"{ROOT}[crewai]", "crewai[a2a,file-processing]", "a2a-sdk[http-server,sqlite]", "uvicorn"),
    "langgraph": (
        *("-e", f"{ROOT}[langgraph]", "langchain", "langgraph-cli[inmem]"),
        *("langgraph-checkpoint-sqlite", "aiosqlite"),
    ),
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
        subprocess.run([interpreter, "-m", "pip", "install", "--quiet", *PEERS[name]], check=True, timeout=1200)
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
