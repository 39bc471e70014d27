"""Records docs/images/terminal.svg: ``python .ci/record.py`` runs the commands of the README and draws what they print, when they do."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.live import free_port, live_server  # noqa: E402

#: The agent of the recording: it streams its answer.
AGENT = """
from a2a_sync import A2AApp, Agent

agent = Agent("poet", description="Writes a poem, word by word", skills={"poem": "Writes a poem"})


@agent.message
def write(message, context):
    for word in f"A poem about {message.text}:\\nno loop, no await,\\nonly a thread that waits\\nand a log that remembers.".split(" "):
        context.sleep(0.25)
        yield word + " "


app = A2AApp(agent)
"""
COMMANDS = ["a2a-sync card URL", 'a2a-sync send URL "penguins"', "a2a-sync list URL"]
_SHOWN = "http://127.0.0.1:8000"


def record(url: str, folder: Path) -> list[tuple[float, str]]:
    """The lines of the session, each with the second at which it was complete."""
    lines: list[tuple[float, str]] = []
    begun = time.monotonic()
    for command in COMMANDS:
        lines.append((time.monotonic() - begun, f"$ {command.replace('URL', _SHOWN)}"))
        words = [word.strip('"') for word in command.replace("URL", url).split(" ")]
        with subprocess.Popen(
            [sys.executable, "-m", "a2a_sync", *words[1:]],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "92"},
        ) as process:
            assert process.stdout is not None
            lines.extend((time.monotonic() - begun, line.rstrip().replace(url, _SHOWN)) for line in process.stdout)
        assert process.returncode == 0, command
        lines.append((time.monotonic() - begun, ""))
    return lines


def draw(lines: list[tuple[float, str]]) -> str:
    """An SVG in which each line appears at its time; without animation, all of them show."""
    console = Console(record=True, width=92, file=io.StringIO(), force_terminal=True)
    for _, line in lines:
        console.print(Text(line, style="bold green" if line.startswith("$ ") else ""), overflow="crop", no_wrap=True)
    picture = console.export_svg(title="a2a-sync", unique_id="terminal")
    rules = "\n".join(
        f'[clip-path="url(#terminal-line-{number})"] {{ animation: appear 0.01s {at:.2f}s both; }}'
        for number, (at, _) in enumerate(lines)
    )
    style = f"@keyframes appear {{ from {{ opacity: 0; }} to {{ opacity: 1; }} }}\n{rules}\n"
    # Fonts of other servers are not fetched.
    picture = re.sub(r"@font-face \{.*?\}\n", "", picture, flags=re.DOTALL)
    return picture.replace("</style>", f"{style}</style>", 1)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "poet.py").write_text(AGENT)
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "a2a_sync", "serve", "poet:app", "--port", str(port)]
        with live_server(command, url, environment={"PYTHONPATH": f"{name}{os.pathsep}{ROOT}"}, folder=folder):
            lines = record(url, folder)
    (ROOT / "docs" / "images" / "terminal.svg").write_text(draw(lines))


if __name__ == "__main__":
    main()
