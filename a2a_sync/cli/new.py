"""``a2a-sync new``: a project with an agent, tests, a Dockerfile and a README."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

import click

from a2a_sync import __version__
from a2a_sync.cli.text import print_status


@dataclass(frozen=True, slots=True)
class Variant:
    """A kind of project.

    Parameters:
        requirements: what it needs installed.
        target: what gunicorn serves.
        path: the path of the agent.
        about: a sentence about the agent in its README.
        files: further lines of the table of files there.
        environment: further variables of its container.
    """

    requirements: tuple[str, ...]
    target: str = "MODULE:app"
    path: str = ""
    about: str = "It counts words, until you change it."
    files: str = ""
    environment: str = ""


_MODEL = "`MODEL` names its model, such as `openai:gpt-5-mini`, whose provider's key is in the environment."
_OPENAI = "`MODEL` names its model of OpenAI, such as `gpt-5-mini`, and `OPENAI_API_KEY` has the key."
#: By the folder of their templates.
VARIANTS: dict[str, Variant] = {
    "plain": Variant(("a2a-sync[cli]",)),
    "flask": Variant(
        ("a2a-sync[cli]", "flask>=3"),
        "wsgi:site",
        "/agent",
        files="| `wsgi.py` | the Flask site, with the agent at `/agent` |\n",
    ),
    "django": Variant(
        ("a2a-sync[cli]", "django>=5.2"),
        "wsgi:application",
        "/agent",
        files="| `settings.py`, `urls.py`, `wsgi.py`, `manage.py` | the Django site, with the agent at `/agent/` |\n",
    ),
    "langgraph": Variant(
        ("a2a-sync[cli,langgraph]", "langchain[openai]>=1"), about="It is a graph of LangGraph. " + _MODEL
    ),
    "pydantic-ai": Variant(
        ("a2a-sync[cli,pydantic-ai]", "pydantic-ai-slim[openai]"), about="It is an agent of Pydantic AI. " + _MODEL
    ),
    "openai-agents": Variant(
        ("a2a-sync[cli,openai-agents]",), about="It is an agent of the OpenAI Agents SDK. " + _OPENAI
    ),
    "strands": Variant(
        ("a2a-sync[cli,strands]", "strands-agents[openai]"), about="It is an agent of Strands. " + _OPENAI
    ),
    "llamaindex": Variant(
        ("a2a-sync[cli,llamaindex]", "llama-index-llms-openai"), about="It is an agent of LlamaIndex. " + _OPENAI
    ),
    "agent-framework": Variant(
        ("a2a-sync[cli,agent-framework]", "agent-framework-openai"),
        about="It is an agent of the Microsoft Agent Framework. " + _OPENAI,
    ),
    "adk": Variant(
        ("a2a-sync[cli,adk]",),
        about="It is an agent of the Google ADK. `MODEL` names its model, such as `gemini-2.5-flash`, "
        "`GOOGLE_API_KEY` has the key, and `SESSIONS` is the file of its conversations.",
        environment=" SESSIONS=/data/sessions.db",
    ),
    "crewai": Variant(
        ("a2a-sync[cli,crewai]",),
        about="It is a crew of CrewAI. `MODEL` names its model, such as `openai/gpt-5-mini`, "
        "whose provider's key is in the environment. CrewAI sends telemetry unless `CREWAI_DISABLE_TELEMETRY` is `true`.",
    ),
}
#: Those whose agent is one of a framework; their names are those of the extras.
FRAMEWORKS = tuple(name for name in VARIANTS if name not in ("plain", "flask", "django"))
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9]*([-_][a-zA-Z0-9]+)*")
#: Names of files that the projects have, or of packages that they import.
_TAKEN = {"a2a_sync", "settings", "urls", "wsgi", "manage", "tests", "flask", "django", "langgraph", "pydantic_ai"}
_TAKEN |= {"agents", "openai", "strands", "llama_index", "agent_framework", "google", "crewai"}


@click.command(epilog="Example: a2a-sync new word-counter --flask")
@click.argument("name")
@click.option("--flask", "variant", flag_value="flask", help="The agent is a part of a Flask site.")
@click.option("--django", "variant", flag_value="django", help="The agent is a part of a Django site.")
@click.option("--framework", type=click.Choice(FRAMEWORKS), help="The agent is one of this framework.")
def new(name: str, variant: str | None, framework: str | None) -> None:
    """Create a project for an agent in the new folder NAME.

    It has an agent, tests that call it over HTTP, a Dockerfile and a README with the commands to test, serve and call
    it. No existing file is changed.
    """
    if variant and framework:
        raise click.UsageError(f"--framework and --{variant} exclude each other")
    module = name.replace("-", "_").lower()
    if not _NAME.fullmatch(name) or keyword.iskeyword(module) or module in _TAKEN | sys.stdlib_module_names:
        raise click.BadParameter(f"{name!r} cannot be the name of a module; choose one such as word-counter")
    folder = Path(name)
    try:
        folder.mkdir()
        written = list(write_project(folder, name, module, framework or variant or "plain"))
    except FileExistsError:
        raise click.UsageError(f"{name} exists already; choose another name or folder") from None
    except OSError as error:
        raise click.UsageError(f"cannot write {error.filename}: {error.strerror}") from None
    for path in sorted(written):
        click.echo(path)
    print_status(f"next: cd {name} && pip install -r requirements.txt pytest && pytest")


def write_project(folder: Path, name: str, module: str, variant: str) -> Iterator[Path]:
    """Write the files of a project into an empty folder, and yield their paths."""
    kind = VARIANTS[variant]
    values = {
        "name": name,
        "module": module,
        "version": __version__,
        "requirements": "\n".join(kind.requirements),
        "target": kind.target.replace("MODULE", module),
        "path": kind.path,
        "about": kind.about,
        "files": kind.files,
        "environment": kind.environment,
    }
    templates = resources.files("a2a_sync.cli") / "templates"
    for source in ("common", variant):
        for relative, template in _templates(templates / source):
            path = folder / relative.replace("MODULE", module)
            path.parent.mkdir(exist_ok=True)
            text = Template(template.read_text()).substitute(values)
            path.write_text(text.rstrip("\n") + "\n")
            yield path


def _templates(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    """The templates in a folder and those below it, with the names of the files that they become."""
    for one in folder.iterdir():
        if one.is_dir():
            yield from _templates(one, f"{prefix}{one.name}/")
        elif one.name.endswith(".in"):
            yield prefix + re.sub("^dot-", ".", one.name.removesuffix(".in")), one
