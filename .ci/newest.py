"""Run the tests of the frameworks with their newest releases: the requirements of this project without their upper bounds.

    python .ci/newest.py

Each set of packages gets a new environment, `.venv-newest-NAME`. The exit code is that of the tests.
"""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: The extras, with the folders of their tests.
SUITES = {"frameworks": "tests/frameworks", "crewai-tests": "tests/crewai"}


def newest(extra: str) -> list[str]:
    """The requirements of an extra, such as ``langgraph >=1.2``."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    listed = config["options.extras_require"][extra].splitlines()
    return [re.sub(r"\s*,?\s*<[^,]*", "", line).strip() for line in listed if line.strip()]


def run(extra: str, tests: str) -> int:
    """Install the newest releases and run the tests with them; the exit code of pytest."""
    folder = ROOT / f".venv-newest-{extra}"
    venv.create(folder, clear=True, with_pip=True)
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "-qq", "--disable-pip-version-check", "install"]
    subprocess.run([*install, "-e", ".[cli]", *newest(extra)], cwd=ROOT, check=True)
    return subprocess.run([python, "-m", "pytest", tests], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(max([run(extra, tests) for extra, tests in SUITES.items()]))
