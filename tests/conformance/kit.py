"""Runs the official test kits against this library: ``make tck``, or ``python -m tests.conformance.kit``.

A kit is fetched at a fixed commit and has its own virtual environment; both are in `.venv-kits/`, which git ignores. A run is one
start of an agent and one execution of the kit's tests. `kit_errors` lists the kit's errors, each with the section of the
specification; a run must have exactly these failures.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from tests.conformance.kit_errors import KIT_ERRORS
from tests.live import ROOT, LiveServer, free_port, gunicorn

SOURCE = "https://github.com/a2aproject/a2a-tck.git"
HOME = ROOT / ".venv-kits"
PAGE = ROOT / "docs" / "conformance-kit.md"
#: The exit code if the kit could not be fetched, which is neither a success nor a failure.
UNREACHABLE = 75
_TIMEOUT = 900


@dataclass(frozen=True)
class Kit:
    """A branch of the official kit, at the commit to which the recorded results refer."""

    branch: str
    commit: str
    date: str

    @property
    def folder(self) -> Path:
        return HOME / f"{self.branch}-{self.commit[:12]}"


NEW = Kit("1.0-dev", "357c4a87afa2818731590647cccbea31c31733a2", "2026-05-05")
OLD = Kit("0.3.x", "eb1f804c27ea25db8805264d9ed2d7ca077a7776", "2026-04-27")


@dataclass(frozen=True)
class Run:
    """One run: the kit's tests (arguments of pytest) and the agent."""

    name: str
    kit: Kit
    arguments: tuple[str, ...]
    agent: str = "plain"

    def command(self, python: Path, url: str, report: Path) -> list[str]:
        option = "--sut-host" if self.kit is NEW else "--sut-url"
        return [
            str(python),
            "-m",
            "pytest",
            *self.arguments,
            f"{option}={url}",
            f"--junitxml={report}",
            "--tb=short",
            "-q",
        ]


def _runs_of_the_old_kit() -> Iterator[Run]:
    categories = {
        "mandatory": ("tests/mandatory/", "-m", "mandatory_jsonrpc or mandatory_protocol"),
        "capabilities": ("tests/optional/capabilities/",),
        "quality": ("tests/optional/quality/",),
        "features": ("tests/optional/features/",),
    }
    for transport, binding in (("jsonrpc", "JSON-RPC"), ("rest", "HTTP+JSON"), ("grpc", "gRPC")):
        for category, arguments in categories.items():
            if transport != "jsonrpc" and category == "mandatory":
                # As in the kit's own runner: its JSON-RPC tests apply to JSON-RPC only.
                arguments = ("tests/mandatory/protocol/", "-m", "mandatory_protocol")
            options = (*arguments, "--test-scope=all", "--transports", transport)
            yield Run(f"{category}, {binding}", OLD, options)
            if category in ("mandatory", "capabilities"):
                yield Run(f"{category}, {binding}, all that the card can promise", OLD, options, "full")
    both = ("tests/optional/multi_transport/", "-m", "transport_equivalence", "--test-scope=all")
    yield Run("transport equivalence", OLD, (*both, "--transports", "jsonrpc,rest"))


_ALL = ("tests/compatibility/", "--transport=jsonrpc,http_json")
_GRPC = ("tests/compatibility/", "--transport=grpc")
RUNS = (
    Run("everything", NEW, _ALL),
    Run("everything, all that the card can promise", NEW, _ALL, "full"),
    Run("gRPC", NEW, _GRPC),
    Run("gRPC, all that the card can promise", NEW, _GRPC, "full"),
    Run("a required extension", NEW, (*_ALL, "-k", "TestCapabilityExtensionRequired"), "demanding"),
    *_runs_of_the_old_kit(),
    Run("authentication", OLD, ("tests/mandatory/authentication/", "--test-scope=all"), "secured"),
)


@dataclass
class Result:
    """The result of a run: the number of tests by outcome, and those that did not pass."""

    run: Run
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("passed", "failed", "skipped"), 0))
    failed: dict[str, str] = field(default_factory=dict)
    undecided: int = 0

    def read(self, report: Path) -> None:
        """Read pytest's report. An unmet SHOULD, an expected failure for the kit, is a failure here."""
        for case in ElementTree.parse(report).iter("testcase"):
            name = f"{case.get('classname', '').removeprefix('tests.')}.{case.get('name')}"
            skip = case.find("skipped")
            broken = next((one for one in map(case.find, ("failure", "error")) if one is not None), None)
            if broken is None and skip is not None and skip.get("type") == "pytest.xfail":
                broken = skip
            if name in self._listed(timing=True):
                self.undecided += 1
                continue
            if broken is not None:
                self.failed[name] = (broken.get("message") or "").splitlines()[0][:300]
            self.counts["failed" if broken is not None else "skipped" if skip is not None else "passed"] += 1

    def _listed(self, *, timing: bool) -> set[str]:
        errors = [error for error in KIT_ERRORS if self.run.name in error.runs and error.timing is timing]
        return {test for error in errors for test in error.tests}

    def surprises(self) -> list[str]:
        """The differences from the list of the kit's errors."""
        expected = self._listed(timing=False)
        problems = [
            f"{self.run.name}: {test} failed: {why}" for test, why in self.failed.items() if test not in expected
        ]
        problems += [
            f"{self.run.name}: {test} passed, but is listed as wrong" for test in expected - self.failed.keys()
        ]
        if not self.counts["passed"]:
            problems.append(f"{self.run.name}: no test passed")
        return problems


def fetch(kit: Kit, source: str) -> bool:
    """Fetch the kit's files into its folder; return False if the source cannot be reached."""
    if (kit.folder / "run_tck.py").exists():
        return True
    kit.folder.mkdir(parents=True, exist_ok=True)
    (HOME / ".gitignore").write_text("*\n")
    git = ["git", "-C", str(kit.folder)]
    subprocess.run([*git, "init", "--quiet"], check=True, timeout=60)
    try:
        fetched = subprocess.run(
            [*git, "fetch", "--quiet", "--depth=1", source, kit.commit],
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
            timeout=60,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    if fetched.returncode:
        return False
    subprocess.run([*git, "checkout", "--quiet", "--detach", kit.commit], check=True, timeout=60)
    return True


def environment() -> Path:
    """The interpreter of an environment with the kits' dependencies."""
    folder = HOME / "python"
    interpreter = folder / "bin" / "python"
    if not (folder / "complete").exists():
        print("setting up the kits' environment …", flush=True)
        wanted = {
            requirement
            for kit in (NEW, OLD)
            for requirement in tomllib.loads((kit.folder / "pyproject.toml").read_text())["project"]["dependencies"]
        }
        venv.create(folder, with_pip=True, clear=True)
        pip = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *sorted(wanted)], check=True, timeout=600)
        (folder / "complete").touch()
    return interpreter


def execute(run: Run, python: Path, *, verbose: bool) -> Result:
    """Start the agent, run the kit's tests, and read their report."""
    report = HOME / "report.xml"
    report.unlink(missing_ok=True)
    otherwise = "tck-complete-task" if run.kit is NEW else "tck-input-required"
    grpc = {}
    if "grpc" in run.arguments or run.arguments == _GRPC:
        grpc["KIT_GRPC"] = f"127.0.0.1:{free_port()}"
        if run.kit is OLD:
            # It reads addresses of gRPC as URLs of HTTP.
            grpc["KIT_GRPC_URL"] = f"http://{grpc['KIT_GRPC']}"
    with (
        tempfile.TemporaryDirectory() as folder,
        gunicorn(
            "tests.conformance.tck_agent:app",
            threads=16,
            environment={
                "KIT_OTHERWISE": otherwise,
                "KIT_AGENT": run.agent,
                "KIT_STORE": f"sqlite:///{folder}/tasks.db",
                **grpc,
            },
        ) as server,
    ):
        command = run.command(python, server.url, report)
        done = subprocess.run(
            command, cwd=run.kit.folder, capture_output=not verbose, text=True, timeout=_TIMEOUT, check=False
        )
        _require(report, done, server)
    result = Result(run)
    result.read(report)
    return result


def _require(report: Path, done: subprocess.CompletedProcess[str], server: LiveServer) -> None:
    if not report.exists():
        raise SystemExit(
            f"the kit did not run (exit code {done.returncode}):\n{done.stdout}\n{done.stderr}\n{server.log}"
        )


HEAD = """# Official conformance kits (a2a-tck)

The A2A project publishes a test kit for agents, [a2a-tck](https://github.com/a2aproject/a2a-tck), with a branch for each protocol
version. It is run against `tests/conformance/tck_agent.py`, which implements the kit's scenarios with the public interface of this
library, over JSON-RPC, HTTP+JSON and gRPC. The kit is not part of this repository: `make tck` fetches it at
the commits below, reports if it cannot, and fails if a result differs from this page; `make tck TCK_OPTIONS=--write` rewrites the page.

The failed tests are those that a correct agent cannot pass; all of them are listed below. An expected failure of the kit (a SHOULD
that is not met) counts as failed. Skipped are other bindings than those of a run, features that the
card does not offer, and tests that need TLS.

The agent is served as in the documentation: gunicorn, SQLite, and the defaults of `A2AApp`, which are both protocol versions and
the media type `application/a2a+json` over HTTP+JSON of 1.0. Tests whose result depends on the speed of the agent are not counted.
"""


def page(results: list[Result]) -> str:
    """The page for the results of all runs."""
    lines = [HEAD, *(f"- branch `{kit.branch}` at commit `{kit.commit}` of {kit.date}" for kit in (NEW, OLD)), ""]
    lines += ["| branch | tests | passed | failed | skipped | not counted |", "| --- | --- | --- | --- | --- | --- |"]
    for result in results:
        counts = " | ".join(str(number) for number in (*result.counts.values(), result.undecided))
        lines.append(f"| {result.run.kit.branch} | {result.run.name} | {counts} |")
    lines += ["", "## Where the kit contradicts the specification", ""]
    lines += ["| test | specification | what is wrong with it |", "| --- | --- | --- |"]
    for error in KIT_ERRORS:
        names = dict.fromkeys(f"`{test.partition('[')[0].rpartition('.')[2]}{_variant(test)}`" for test in error.tests)
        lines.append(f"| {', '.join(names)} | {error.section} | {error.why} |")
    return "\n".join([*lines, ""])


def _variant(test: str) -> str:
    """The requirement for which one of the kit's general tests was run."""
    requirement = re.search(r"\[([A-Z]+-[A-Z]+-[0-9]+)", test)
    return f"[{requirement[1]}]" if requirement else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", default=SOURCE, help="repository of the kit: an address, or the path of a clone")
    parser.add_argument("--if-reachable", action="store_true", help="no failure where the kit cannot be fetched")
    parser.add_argument("--only", default="", help="runs whose branch and name fit this pattern")
    parser.add_argument("--verbose", action="store_true", help="show what the kit prints")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} instead of comparing with it")
    chosen = parser.parse_args()
    if not all(fetch(kit, chosen.source) for kit in (NEW, OLD)):
        print(f"tck: NOT RUN, because the kit cannot be fetched from {chosen.source}", flush=True)
        return 0 if chosen.if_reachable else UNREACHABLE
    python = environment()
    results = []
    for run in RUNS:
        if re.search(chosen.only, f"{run.kit.branch} {run.name}"):
            result = execute(run, python, verbose=chosen.verbose)
            results.append(result)
            counts = ", ".join(f"{word} {number}" for word, number in result.counts.items())
            print(f"tck {run.kit.branch}, {run.name}: {counts}", flush=True)
    problems = [problem for result in results for problem in result.surprises()]
    if not problems and not chosen.only:
        problems = _publish(page(results), write=chosen.write)
    print(*problems, sep="\n", flush=True)
    return 1 if problems else 0


def _publish(text: str, *, write: bool) -> list[str]:
    if write:
        PAGE.write_text(text)
    elif PAGE.read_text() != text:
        return [f"{PAGE.relative_to(ROOT)} shows other figures: make tck TCK_OPTIONS=--write writes it"]
    return []


if __name__ == "__main__":
    sys.exit(main())
