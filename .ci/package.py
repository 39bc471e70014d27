"""The library as users install it: ``python .ci/package.py`` (``make package``).

Builds the source archive and the wheel, checks what they contain, and installs the wheel into fresh environments: once alone, where
the agent of the README is served and called, once with each extra, where that extra is used, and once with all of them, where
pyright must know the type of every public name.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from email.parser import HeaderParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
#: Extras that only contributors install.
NOT_FOR_USERS = {
    "audit",
    "browser",
    "crewai-tests",
    "dev",
    "docs",
    "frameworks",
    "interop",
    "interop-03",
    "package",
    "prose",
    "test",
}
#: Frameworks for which the extra is tested by the import of their module in `a2a_sync.integrations`.
_FRAMEWORKS = {
    "adk",
    "agent-framework",
    "crewai",
    "langgraph",
    "llamaindex",
    "mcp",
    "openai-agents",
    "pydantic-ai",
    "strands",
}
#: Extras whose packages need other versions of what the rest needs.
_APART = {"crewai"}
_AGENT = """
from a2a_sync import A2AApp, Agent, Client
agent = Agent("echo", description="Repeats")
agent.message(lambda message, context: message.text)
"""
#: What is run with each extra alone.
USES = {
    "cli": "import rich\nfrom a2a_sync.cli import main\nmain(['--help'])",
    "console": _AGENT
    + "from a2a_sync.testing import wsgi_session\n"
    + "with A2AApp(agent, console=True) as app:\n"
    + "    assert '<html' in wsgi_session(app).get('http://127.0.0.1/console', timeout=20).text",
    "gevent": "from gevent import monkey\nmonkey.patch_all()\n"
    + _AGENT
    + "assert Client(agent).send('hi').text == 'hi'",
    "grpc": _AGENT
    + "from a2a_sync.grpc import GRPCServer\n"
    + "with GRPCServer(A2AApp(agent), '127.0.0.1:0') as server, Client(f'grpc://127.0.0.1:{server.port}') as client:\n"
    + "    assert client.send('hi').text == 'hi'",
    "jwt": "from a2a_sync.auth import JWTAuth\nJWTAuth(key=b'a secret of at least 32 bytes, or so', issuer='https://id.example.com', audience='a', algorithms=['HS256'])",
    "prometheus": _AGENT
    + "from a2a_sync.server.metrics import Metrics\nfrom a2a_sync.testing import wsgi_session\n"
    + "page = wsgi_session(A2AApp(agent, metrics=Metrics())).get('http://agent.test/metrics', timeout=20).text\n"
    + "assert 'a2a_runs_active 0.0' in page",
    "otel": "import opentelemetry.trace\n" + _AGENT + "assert Client(agent).send('hi').text == 'hi'",
    "signing": _AGENT
    + "from cryptography.hazmat.primitives.asymmetric import ed25519\nfrom a2a_sync.signing import CardSigner\n"
    + "signer = CardSigner(ed25519.Ed25519PrivateKey.generate(), kid='1')\n"
    + "from a2a_sync.testing import wsgi_session\n"
    + "app = A2AApp(agent, url='http://agent.test/', card_signer=signer)\n"
    + "assert wsgi_session(app).get('http://agent.test/.well-known/agent-card.json', timeout=20).json()['signatures']",
    **{name: f"import a2a_sync.integrations.{name.replace('-', '_')}" for name in _FRAMEWORKS},
}


def run(*words: str | Path, cwd: Path = ROOT, path: str = os.environ["PATH"], passes: bool = True) -> str:
    """The output of a command, which must succeed unless `passes` is false."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        # The package of the working tree must not be found in place of the installed one.
        env={**{name: value for name, value in os.environ.items() if name != "PYTHONPATH"}, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
        check=False,
    )
    if done.returncode and passes:
        raise AssertionError(f"{' '.join(map(str, words))[:300]}\nexit code {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def build(folder: Path) -> Path:
    """The wheel, made from the source archive as an installer would."""
    run(BIN / "python", "-m", "build", "--installer", "uv", "--outdir", folder, ROOT)
    archives = sorted(folder.iterdir())
    assert len(archives) == 2, archives
    run(BIN / "python", "-m", "twine", "check", "--strict", *archives)
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> set[str]:
    """Compare the files of the wheel with those of the repository; the extras that the wheel offers."""
    listed = run("git", "-C", ROOT, "ls-files", "a2a_sync").split()
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = next(name.split("/")[0] for name in names if name.endswith("/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(f"{info}/METADATA").decode())
    missing = set(listed) - names
    assert not missing, f"not in the wheel: {sorted(missing)}; see [options.package_data] in setup.cfg"
    strange = {name for name in names if not name.startswith(("a2a_sync/", info))}
    assert not strange, f"in the wheel, and not of the package: {sorted(strange)}"
    for licence in ("LICENSE", "NOTICE"):
        assert f"{info}/licenses/{licence}" in names, f"{licence} is not in the wheel"
    assert "a2a_sync/py.typed" in names
    return set(metadata.get_all("Provides-Extra") or ()) - NOT_FOR_USERS


def environment(folder: Path, requirement: str) -> Path:
    """The Python of a new virtual environment with `requirement` in it."""
    run(BIN / "uv", "venv", "--quiet", "--python", sys.executable, folder)
    python = folder / "bin" / "python"
    run(BIN / "uv", "pip", "install", "--quiet", "--python", python, requirement)
    run(BIN / "uv", "pip", "check", "--python", python)
    return python


def smoke(wheel: Path, folder: Path) -> None:
    """Serve the agent of the README with gunicorn from the wheel alone, and call it as the README does."""
    # The first environment is made as in the documentation: venv and pip.
    run(sys.executable, "-m", "venv", folder / "plain")
    python = folder / "plain" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    service, call = (next(block for block in blocks if word in block) for word in ("A2AApp(", "Client("))
    (folder / "hello.py").write_text(service)
    command = [
        str(python),
        "-m",
        "gunicorn",
        "hello:app",
        "--threads",
        "8",
        "-c",
        "python:a2a_sync.gunicorn",
        "-b",
        "127.0.0.1:0",
    ]
    server = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        address = next(found[1] for line in server.stderr if (found := re.search(r"Listening at: http://(\S+)", line)))
        program = (
            call.replace("127.0.0.1:8000", address).replace("Client(", "print(Client(", 1).replace(".text", ".text)", 1)
        )
        assert run(python, "-c", program, cwd=folder).strip() == "Hello, Ada!"
    finally:
        server.terminate()
        server.communicate(timeout=60)


def use(extra: str, wheel: Path, folder: Path) -> None:
    """Use an extra in an environment that has no other."""
    python = environment(folder / extra, f"{wheel}[{extra}]")
    # An extra without a line in the table is installed, and its requirements are consistent.
    run(python, "-c", USES.get(extra, "import a2a_sync"), cwd=folder)


def check_types(wheel: Path, folder: Path, extras: set[str]) -> None:
    """Pyright knows the type of every name, parameter and result that the package makes public."""
    together = environment(folder / "all", f"{wheel}[{','.join(sorted(extras - _APART))}]")
    unknown = unknown_types(together, folder)
    for extra in sorted(extras & _APART):
        # Judged where its packages are.
        module = f"a2a_sync.integrations.{extra}"
        others = {name: text for name, text in unknown.items() if not name.startswith(module)}
        apart = unknown_types(environment(folder / f"{extra}-types", f"{wheel}[{extra}]"), folder)
        unknown = others | {name: text for name, text in apart.items() if name.startswith(module)}
    assert not unknown, "\n".join(f"{name}\n{text}" for name, text in unknown.items())


def unknown_types(python: Path, folder: Path) -> dict[str, str]:
    """What pyright finds in the environment of `python`, by public name."""
    # With this option pyright asks the first `python` of PATH where packages are.
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    output = run(BIN / "pyright", "--verifytypes", "a2a_sync", "--ignoreexternal", cwd=folder, path=path, passes=False)
    assert re.search(r"Symbols exported by \"a2a_sync\": [1-9]", output), output
    _, _, listed = output.partition("Symbols used in public interface:")
    found = re.findall(r"^(a2a_sync[\w.]*)\n((?:[ \t]+.*\n)+)", listed, re.MULTILINE)
    score = re.search(r"Type completeness score: (.+)", output)
    assert found or (score is not None and score[1] == "100%"), output[-4000:]
    return {name: text for name, text in found if "error:" in text}


def main() -> None:
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun:5.0f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(3) as pool:
        folder = Path(name)
        wheel = build(folder / "dist")
        extras = check_contents(wheel)
        say(f"{wheel.name}: built and checked")
        work = {pool.submit(use, extra, wheel, folder): f"a2a-sync[{extra}] alone" for extra in sorted(extras)}
        work[pool.submit(smoke, wheel, folder)] = "the agent of the README"
        work[pool.submit(check_types, wheel, folder, extras)] = "the type of every public name"
        failed = []
        for future in as_completed(work):
            error = future.exception()
            say(f"{work[future]}: {'FAILED' if error else 'works'}")
            failed += [f"{work[future]}: {error}"] if error else []
    if failed:
        sys.exit("\n\n".join(failed))


if __name__ == "__main__":
    main()
