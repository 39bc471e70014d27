"""What tools for security find in this library and in what it is installed with: ``python .ci/audit.py`` (``make audit``).

What is passed over is listed here with its reason, or stands beside the line in question as ``# nosec``.
"""

from __future__ import annotations

import importlib.metadata as metadata
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: bandit: passed over everywhere.
EVERYWHERE = {
    "B101": "assertions inform the type checker of invariants; no behaviour depends on one",
    "B311": "random numbers spread pauses over time; ids are UUIDs, and no secret is made here",
}
#: bandit: passed over in one folder, where nothing is passed over but this.
IN_FOLDERS = {
    "a2a_sync/stores/postgres": {
        "B608": "the only text put into SQL is the prefix of the tables, which must be an identifier; values are parameters",
        **EVERYWHERE,
    },
    "a2a_sync/stores/sqlite": {
        "B608": "the only text put into SQL is the prefix of the tables, which must be an identifier; values are parameters",
        **EVERYWHERE,
    },
    "a2a_sync/testing/storecontract": {
        "B106": "the webhooks that stores are tested with have tokens, which open nothing",
        **EVERYWHERE,
    },
}
#: pip-audit: ids of vulnerabilities that do not concern us, each with the reason.
IGNORED: dict[str, str] = {}
#: Extras that only contributors install.
NOT_FOR_USERS = {
    *("audit", "bench", "browser", "crewai-tests", "dev", "docs", "frameworks"),
    *("interop", "interop-03", "package", "prose", "services", "test"),
}


def bandit(target: str, passed_over: dict[str, str], *more: str) -> bool:
    """Look at the sources; True when nothing is found."""
    command = [sys.executable, "-m", "bandit", "--quiet", "--recursive", target, "--skip", ",".join(passed_over), *more]
    print(f"bandit {target}, without {', '.join(passed_over)}", flush=True)
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def installed_with_us() -> list[str]:
    """The releases that a user gets with the library and all extras, as far as they are installed here."""
    found: dict[str, str] = {}
    extras = set(metadata.metadata("a2a-sync").get_all("Provides-Extra") or ()) - NOT_FOR_USERS
    waiting = [("a2a-sync", extra) for extra in ("", *sorted(extras))]
    seen = set(waiting)
    while waiting:
        name, extra = waiting.pop()
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[name] = distribution.version
        for requirement in distribution.requires or ():
            needed = _needed(requirement, extra)
            new = [one for one in needed if one not in seen]
            seen.update(new)
            waiting += new
    del found["a2a-sync"]
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def _needed(requirement: str, extra: str) -> list[tuple[str, str]]:
    """What a line of requirements asks for: names, each with an extra."""
    wanted, _, marker = requirement.partition(";")
    of_extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
    if (of_extra.group(1) if of_extra else "") != extra:
        return []
    parts = re.match(r"\s*([\w.-]+)\s*(?:\[([^\]]*)\])?", wanted)
    assert parts is not None
    name = re.sub(r"[-_.]+", "-", parts[1]).lower()
    return [(name, ""), *((name, one.strip()) for one in (parts[2] or "").split(",") if one.strip())]


def pip_audit() -> bool:
    """Query known vulnerabilities; True when there are none, or when the service cannot be reached, which is printed."""
    releases = installed_with_us()
    print(f"pip-audit {' '.join(releases)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        listed = Path(folder) / "requirements.txt"
        listed.write_text("\n".join(releases) + "\n")
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(listed), "--no-deps", "--disable-pip"]
        command += ["--format", "json", "--progress-spinner", "off", "--timeout", "10"]
        command += [word for one in IGNORED for word in ("--ignore-vuln", one)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        except subprocess.TimeoutExpired:
            done = None
    try:
        said = json.loads(done.stdout if done is not None else "")
    except ValueError:
        why = (done.stderr.strip().splitlines() or ["no answer"])[-1] if done is not None else "no answer in time"
        print(f"pip-audit: NOT CHECKED, the database of vulnerabilities cannot be reached from here ({why})")
        return True
    bad = [(one["name"], one["version"], hole) for one in said["dependencies"] for hole in one.get("vulns", ())]
    for name, version, hole in bad:
        print(f"{name} {version}: {hole['id']}, mended in {', '.join(hole['fix_versions']) or 'no release'}")
    skipped = [one["name"] for one in said["dependencies"] if "skip_reason" in one]
    print(f"pip-audit: {len(said['dependencies']) - len(skipped)} releases checked, {len(bad)} vulnerabilities")
    if skipped:
        print(f"pip-audit: NOT CHECKED: {', '.join(skipped)}")
    return not bad


if __name__ == "__main__":
    folders = ",".join(f"./{folder}" for folder in IN_FOLDERS)
    clean = [bandit("./a2a_sync", EVERYWHERE, "--exclude", folders)]
    clean += [bandit(f"./{folder}", passed_over) for folder, passed_over in IN_FOLDERS.items()]
    clean.append(pip_audit())
    sys.exit(0 if all(clean) else 1)
