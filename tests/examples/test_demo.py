from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.live import ROOT

pytestmark = pytest.mark.live


def demo(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), str(folder)]
    return subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
        check=False,
        cwd=folder.parent,
    )


def test_the_demo_shows_progress_artifacts_and_the_kept_task_and_stops_its_servers(tmp_path: Path) -> None:
    done = demo(tmp_path / "out")
    assert done.returncode == 0, done.stdout
    for shown in (
        "working: Read 344 rows and 8 columns from penguins.csv",
        "| body_mass_g | Gentoo | 123 |",
        "mean body_mass_g: Biscoe 4716.0, Dream 3712.9, Torgersen 3706.4",
        "is as it was: TASK_STATE_COMPLETED, 3 artifacts",
        "Stopped cleanly.",
    ):
        assert shown in done.stdout, done.stdout
    saved = sorted(path.name for path in (tmp_path / "out" / "artifacts").iterdir())
    assert saved == ["chart.svg", "summary.json", "summary.md"]
    log = (tmp_path / "out" / "server.log").read_text()
    assert log.count("Starting gunicorn") == log.count("Shutting down: Master") == 2


def test_the_demo_can_run_twice_and_leaves_other_folders_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("important")
    done = demo(tmp_path / "mine")
    assert done.returncode == 1
    assert "is not empty and not from an earlier demo" in done.stdout
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "important"
