"""Agents whose consoles the browser opens: one for each thing that a page shows, and one with hostile texts in every field."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from flask import Flask, session

from a2a_sync import (
    A2AApp,
    Agent,
    AgentHost,
    AgentSkill,
    DataPart,
    FilePart,
    HTTPOptions,
    Limits,
    PushOptions,
    RequestContext,
    TextPart,
    URLGuard,
)
from a2a_sync.agent.dialogue import MARK
from a2a_sync.auth import ApiKeyAuth, BasicAuth, BearerAuth, FrameworkAuth, JWTAuth, Principal
from a2a_sync.card import (
    AgentProvider,
    ClientCredentialsOAuthFlow,
    OAuth2SecurityScheme,
    OpenIdConnectSecurityScheme,
    create_agent_card,
)
from a2a_sync.console import ConsoleOptions
from a2a_sync.errors import InvalidParamsError
from a2a_sync.integrations.flask import blueprint
from a2a_sync.types import (
    Artifact,
    Message,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from tests.console.payloads import ATTACK, ATTACKS, HOSTILE_PDFS, PDF, PNG, SECRET, SIGNING_KEY, SVG, make_wav

#: Ends the code of "stubborn", which a cancel does not end.
_let_go = threading.Event()


class Story(Agent):
    name = "storyteller"
    description = "Writes a story, a few words at a time, in Markdown."
    skills = [
        AgentSkill(
            id="story",
            name="A story",
            description="Writes a story about penguins.",
            tags=["story", "markdown"],
            examples=["A story about the clock"],
        ),
        AgentSkill(id="count", name="Count", description="Counts the words of what you send.", tags=["text"]),
    ]

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        text = message.text
        if text.startswith("wait"):
            return _slow(context, int(text.split()[1]))
        if text.startswith("shirt"):
            size = context.choose("Which size?", ["small", "large"])
            return f"A {size} shirt, then."
        if text.startswith("ask"):
            return f"Hello, {context.ask('What is your name?')}."
        if text.startswith("hang"):
            return wait_for_the_penguin(context)
        if text.startswith("doze"):
            return wait_for_the_walrus(context)
        if text.startswith("stubborn"):
            _let_go.clear()
            _let_go.wait(120)
            return "It returns at last."
        if text.startswith("let go"):
            _let_go.set()
            return "Gone."
        if text.startswith("fail"):
            raise ValueError("the penguin has left")
        if text.startswith("show"):
            return [
                TextPart("Four kinds of parts:"),
                FilePart(raw=PNG, filename="pixel.png", media_type="image/png"),
                DataPart([{"day": 1, "turns": 1}, {"day": 2, "turns": 2}]),
                DataPart({"penguin": {"name": "Ada", "clocks": [1, 2, 3]}}),
                FilePart(url="https://example.com/report.pdf", filename="report.pdf", media_type="application/pdf"),
            ]
        if text.startswith("files"):
            return _files()
        if text.startswith("listen"):
            # As `mimetypes` names it.
            return FilePart(raw=make_wav(), filename="tick.wav", media_type="audio/x-wav")
        if text.startswith("hostile documents"):
            return [FilePart(raw=one, filename="x.pdf", media_type="application/pdf") for one in HOSTILE_PDFS]
        if message.files:
            return f"I got **{len(message.files)}** file: {message.files[0].filename}"
        return _story(context)


def wait_for_the_penguin(context: RequestContext) -> str:
    """Code that hangs, as far as operators can see."""
    context.sleep(600)
    return "It came."


def wait_for_the_walrus(context: RequestContext) -> str:
    """Code that hangs elsewhere."""
    context.sleep(600)
    return "It came too."


def _files() -> list[Any]:
    return [
        TextPart("Five files:"),
        FilePart(raw=b'day;turns;note\n1;1;"wound; slowly"\n2;2;\n', filename="turns.csv", media_type="text/csv"),
        FilePart(raw=b"## Notes\n\n*Twelve* turns.\n", filename="notes.md", media_type="text/markdown"),
        FilePart(raw=b'{"penguin": {"clocks": [1, 2]}}', filename="ada.json", media_type="application/json"),
        FilePart(raw=b"12:00 tick *once*\n", filename="clock.txt", media_type="text/plain"),
        FilePart(raw=PDF, filename="story.pdf", media_type="application/pdf"),
    ]


def _story(context: RequestContext) -> Iterator[str]:
    yield "## The penguin and the clock\n\n"
    for day in range(1, 9):
        for word in f"On day {day} she wound it *{day} times* and informed the colony: `tick {day}`. ".split(" "):
            yield f"{word} "
        yield "\n\n"
    yield "| day | turns |\n|---|---|\n| 1 | 1 |\n| 2 | 2 |\n\n```\nclock.wind(turns=12)  # enough for a year\n```\n"


def _slow(context: RequestContext, count: int) -> Iterator[str]:
    for number in range(count):
        context.sleep(0.05)
        yield f"piece-{number} "


class Hostile(Agent):
    """Everything that it says attacks the page."""

    def handle_message(self, message: Message, context: RequestContext) -> Any:
        files = [
            FilePart(raw=b"<script>parent.hacked=1</script>", filename='"><script>x.html', media_type="text/html"),
            FilePart(raw=SVG, filename="../../x.svg", media_type="image/svg+xml"),
            FilePart(raw=b"<script>top.hacked=1</script>", filename=ATTACK, media_type="image/png"),
            FilePart(url="javascript:window.hacked=1", filename=ATTACK, media_type=ATTACK),
        ]
        context.update(ATTACK)
        parts = (TextPart(ATTACK), *map(TextPart, ATTACKS), TextPart(ATTACK, media_type="text/html"), *files)
        data = (DataPart({ATTACK: [ATTACK, {ATTACK: ATTACK}]}), DataPart([{ATTACK: ATTACK}]))
        artifact = Artifact(parts=(*parts, *data), artifact_id='"><script>a/b', name=ATTACK, description=ATTACK)
        context.emit(TaskArtifactUpdateEvent(artifact=artifact, last_chunk=True))
        context.emit(Message(role=Role.AGENT, parts=(TextPart(ATTACK),), message_id='"><script>m/n'))
        question = replace(context.agent_message(ATTACK), metadata={MARK: {"number": 1, "options": [ATTACK, "other"]}})
        context.emit(TaskStatusUpdateEvent(status=TaskStatus(state=TaskState.INPUT_REQUIRED, message=question)))
        return None


class Reply(Agent):
    """Responds without tasks: with the attack, or with an error that has it."""

    name, description = "replies", "Replies"
    direct = True

    def handle_message(self, message: Message, context: RequestContext) -> Message:
        if message.text == "fail":
            raise InvalidParamsError(ATTACK)
        return Message(role=Role.AGENT, parts=(TextPart(ATTACK),))


HOSTILE_CARD = create_agent_card(
    ATTACK,
    ATTACK,
    skills=[
        AgentSkill(id="s", name=ATTACK, description=ATTACK, tags=[ATTACK], examples=[ATTACK]),
    ],
    version="<b>1</b>",
    provider=AgentProvider(organization=ATTACK, url="javascript:window.hacked=1"),
    documentation_url="javascript:window.hacked=1",
    icon_url="http://evil.test/icon.png",
)

app = A2AApp(Story(), store=os.environ.get("A2A_TEST_STORE"), console=True)
hooked = A2AApp(
    Story(),
    push=PushOptions(url_guard=URLGuard(allow=["127.0.0.1"]), max_attempts=2, initial_backoff=0.1),
    console=True,
)
#: It tries again after 3 s, 6 s, …
patient = A2AApp(Story(), push=PushOptions(url_guard=URLGuard(allow=["127.0.0.1"]), initial_backoff=3.0), console=True)
#: One run at a time.
single = A2AApp(Story(), console=True, limits=Limits(max_concurrent_runs=1))
hostile = A2AApp(Hostile(), card=HOSTILE_CARD, console=True)
#: Served under a host name.
named = A2AApp(Story(), console=True, http=HTTPOptions(trusted_hosts=["intranet.test"]))
replying = A2AApp(Reply(), console=True)
narrow = A2AApp(Story(), console=True, limits=Limits(max_open_streams=4))
#: Every stream of a page is cut after this time.
BRIEF = Limits(max_stream_age=0.4)
brief = A2AApp(Story(), console=True, limits=BRIEF)
#: Behind nginx.
proxied = A2AApp(Story(), console=True, http=HTTPOptions(trusted_proxies=1))
jwt = A2AApp(
    Story(), auth=JWTAuth(key=SIGNING_KEY, issuer="tests", audience="story", leeway=0), console=True, limits=BRIEF
)
#: Tokens as in `jwt`, announced in other ways.
FLOW = ClientCredentialsOAuthFlow(token_url="https://login.example.com/token", scopes={})
OPENID = "https://login.example.com/.well-known/openid-configuration"
oauth, openid = (
    A2AApp(
        Story(),
        auth=JWTAuth(key=SIGNING_KEY, issuer="tests", audience="story", scheme=scheme, name=name),
        console=True,
    )
    for name, scheme in (
        ("oauth", OAuth2SecurityScheme(flow=FLOW)),
        ("openid", OpenIdConnectSecurityScheme(open_id_connect_url=OPENID)),
    )
)
host = AgentHost({"story": Story(), "other": Story()}, console=True)
secured = A2AApp(
    Story(),
    auth=BearerAuth({SECRET: Principal(id="ada"), "eve": Principal(id="eve")}.get)
    | ApiKeyAuth({"key-of-root": "root"}, header="X-Key")
    | BasicAuth({"bob": "pass-of-bob"}),
    console=ConsoleOptions(operator=lambda principal: principal.id == "root"),
)
#: Without JSON-RPC.
rest = A2AApp(Story(), auth=BasicAuth({"bob": "pass-of-bob"}), protocol_bindings=("HTTP+JSON",), console=True)

site = Flask("site")
site.config["SECRET_KEY"] = SECRET
site.register_blueprint(
    blueprint(A2AApp(Story(), auth=FrameworkAuth(), console=True, limits=BRIEF), principal=lambda: session.get("user")),
    url_prefix="/agents/story",
)


@site.get("/login/<name>")
def log_in(name: str) -> str:
    """The login of the web site itself."""
    session["user"] = name
    return "welcome"


@site.get("/logout")
def log_out() -> str:
    """Its end, as after its life time."""
    session.clear()
    return "goodbye"
