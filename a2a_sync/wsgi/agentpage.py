"""The page for people that a browser gets at the agent's own address, where programs post their calls.

It shows the public card: name, description, skills, and where to go from here. It needs no credentials, as the card does, runs
no code, and loads only its own style sheet from the same address.
"""

from __future__ import annotations

from html import escape
from wsgiref.types import WSGIEnvironment

from werkzeug.wrappers import Request, Response

from a2a_sync.card import AgentCard
from a2a_sync.wsgi.cards import CARD_PATH

#: The key of the environ with the path of the console, set by a console in front of the app.
CONSOLE_PATH = "a2a_sync.console_path"
_STYLE_QUERY = "style.css"
_POLICY = (
    "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
_STYLE = """\
:root { color-scheme: light dark; }
body { margin: 0 auto; padding: 40px 20px; max-width: 720px; font: 16px/1.6 system-ui, sans-serif;
  color: light-dark(#1d2226, #e8e6e1); background: light-dark(#f6f5f2, #14171a); }
h1 { font-size: 26px; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 32px 0 8px; }
p, li { overflow-wrap: anywhere; }
.soft { color: light-dark(#5b6268, #a3a9af); }
ul { padding: 0; list-style: none; }
li { margin: 8px 0; padding: 12px 16px; border: 1px solid light-dark(#dddad3, #2c3237); border-radius: 12px;
  background: light-dark(#fff, #1b1f23); }
a { color: light-dark(#0f6b66, #5fc9c1); }
a:focus-visible { outline: 2px solid currentColor; outline-offset: 2px; }
"""


def wants_page(environ: WSGIEnvironment, path: str) -> bool:
    """A browser opens the app's own address; programs post to it, and never accept HTML above JSON."""
    if path not in ("/", "") or environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
        return False
    accepted = environ.get("HTTP_ACCEPT", "").lower()
    return "text/html" in accepted or (environ.get("QUERY_STRING") == _STYLE_QUERY and "text/css" in accepted)


def agent_page(card: AgentCard, request: Request) -> Response:
    """The page of an agent, or its style sheet."""
    if request.query_string.decode("latin-1") == _STYLE_QUERY:
        return _response(_STYLE, "text/css; charset=utf-8")
    base = request.root_path.rstrip("/")
    console = request.environ.get(CONSOLE_PATH)
    links = [f'<a href="{escape(base + CARD_PATH)}">The agent card as JSON</a>']
    links += [f'<a href="{escape(console)}">Open the console</a>'] if console else []
    skills = "".join(
        f"<li><strong>{_text(skill.name)}</strong><br>{_text(skill.description)}</li>" for skill in card.skills
    )
    body = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_text(card.name)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="stylesheet" href="?{_STYLE_QUERY}">'
        f"</head><body><main><h1>{_text(card.name)}</h1><p>{_text(card.description)}</p>"
        f'<p class="soft">An A2A agent, version {_text(card.version)}. Programs call it at this address.</p>'
        f"<h2>Skills</h2><ul>{skills}</ul><h2>From here</h2><p>{' · '.join(links)}</p></main></body></html>"
    )
    return _response(body, "text/html; charset=utf-8")


def _text(text: str) -> str:
    # A lone surrogate has no bytes.
    return escape(text.encode("utf-8", "replace").decode())


def _response(body: str, content_type: str) -> Response:
    response = Response(body, content_type=content_type)
    response.headers.update(
        {
            "Content-Security-Policy": _POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-cache",
            "Vary": "Accept",
        }
    )
    return response
