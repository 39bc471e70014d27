"""`make test` and `make check` together run every test of the library. Only property tests run in both, deeper in `make check`."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.live import ROOT

#: Folders of `tests` with a command of their own.
COMMANDS = {
    "interop": "interop",
    "interop03": "interop",
    "interopjs": "interop",
    "frameworks": "frameworks-tests",
    "crewai": "crewai-tests",
    "benchmarks": "bench",
    "browser": "console-tests",
    "soak": "soak",
    "services": "test-services",
}


#: Folders of the package whose tests are in a folder of another name, with the reason.
TESTED_ELSEWHERE = {"gunicorn": "servers"}  # each of these tests starts gunicorn


def commands(target: str) -> str:
    """What `make TARGET` would run, without its environment."""
    made = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return made.stdout


def suites(target: str) -> list[str]:
    """The calls of pytest that `make TARGET` makes."""
    return [line for line in commands(target).splitlines() if "-m pytest" in line]


def test_what_make_test_leaves_out_is_run_by_make_check_or_by_a_command_of_its_own() -> None:
    (tested,) = suites("test")
    rest, deep = suites("check")
    left_out = set(re.findall(r"--ignore=tests/(\w+)", tested))
    checked = set(re.findall(r" tests/(\w+)", rest))
    assert checked
    assert left_out == checked | COMMANDS.keys()
    assert "--hypothesis-profile=deep" in deep
    assert set(re.findall(r"--ignore=tests/(\w+)", deep)) == left_out
    for name in checked:
        assert list((ROOT / "tests" / name).glob("test_*.py")), f"no tests in {name}"


@pytest.mark.parametrize("folder", COMMANDS)
def test_a_suite_apart_is_run_by_its_command(folder: str) -> None:
    assert re.search(rf"tests[./]{folder}\b", commands(COMMANDS[folder]))


def test_ci_runs_every_suite() -> None:
    checks = re.findall(r'^ +"[\w-]+ \d+ make ([\w-]+)', Path(ROOT, ".ci", "run").read_text(), re.MULTILINE)
    suites = "test check test-gevent test-services console-tests frameworks crewai interop tck"
    assert sorted(checks) == sorted(f"{suites} lint types prose docs demo audit package".split())


def test_each_folder_of_the_package_has_a_folder_of_tests() -> None:
    folders = {path.parent.name for path in (ROOT / "a2a_sync").glob("*/__init__.py")}
    assert folders >= TESTED_ELSEWHERE.keys()
    for folder in folders:
        tests = ROOT / "tests" / TESTED_ELSEWHERE.get(folder, folder)
        assert list(tests.glob("test_*.py")), f"no tests in {tests}"


def test_the_page_of_suites_names_what_exists() -> None:
    page = (ROOT / "docs" / "explanation" / "tests.md").read_text()
    paths = re.findall(r"^\| `(tests/[\w./]+)`", page, re.MULTILINE)
    assert len(paths) > 5
    assert [path for path in paths if not (ROOT / path).exists()] == []
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"`make ([a-z0-9-]+)`", page))
    assert named
    assert named <= targets
