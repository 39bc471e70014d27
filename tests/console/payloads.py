"""Texts and files that would run code, load something or change the page if a wall were missing."""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from a2a_sync import A2AApp
from a2a_sync.card import AgentInterface

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000080000000808020000004b6d29dc00000011"
    "49444154789c63e0cf4ec38a1886960400cc43380123b6457d0000000049454e44ae426082"
)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><script>parent.hacked = 1</script></svg>'


def make_wav() -> bytes:
    """A tenth of a second of silence."""
    with io.BytesIO() as file:
        with wave.open(file, "wb") as sound:
            sound.setparams((1, 1, 8000, 800, "NONE", ""))
            sound.writeframes(b"\x80" * 800)
        return file.getvalue()


def make_pdf(action: str = "") -> bytes:
    """A document with one page; `action` is what its viewer should do when it is opened."""
    text = b"BT /F1 48 Tf 60 700 Td (The penguin) Tj ET"
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R {f'/OpenAction {action}' if action else ''} >>".encode(),
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
        b" /Resources << /Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(text), text),
    ]
    body, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    trailer = b"trailer << /Root 1 0 R /Size %d >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, len(body))
    return body + head + table + trailer


PDF = make_pdf()
#: Documents that lead elsewhere, and run code, when a viewer opens them.
HOSTILE_PDFS = (
    make_pdf("<< /S /URI /URI (http://evil.test/) >>"),
    make_pdf("<< /S /JavaScript /JS (app.launchURL\\('http://evil.test/'\\);) >>"),
    make_pdf("<< /S /GoToR /F (http://evil.test/x.pdf) /D [0 /Fit] >>"),
)
ATTACKS = (
    "<script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "[click](javascript:window.hacked=1) <javascript:window.hacked=1>",
    "![pixel](http://evil.test/pixel.png)",
    '<meta http-equiv="refresh" content="0;url=http://evil.test/">',
    '"><svg onload=window.hacked=1>',
    "{{ 7*7 }} ${7*7} {% raw %}",
    "<iframe srcdoc='<script>parent.hacked=1</script>'></iframe>",
    "<style>body{display:none}</style>",
    "<form action=http://evil.test><button>Go</button></form>",
    "a\u202egnp.exe \x1b[31m \x00 &#x202E; \u2066",
    "<a href='data:text/html,<script>window.hacked=1</script>'>x</a>",
    "</textarea></script></title><script>window.hacked=1</script>",
    "[x](&#106;avascript:window.hacked=1) [y](\tjavascript:window.hacked=1) <a href='\x01javascript:window.hacked=1'>z</a>",
    "<base href=http://evil.test/><link rel=stylesheet href=http://evil.test/x.css><object data=http://evil.test/></object>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=window.hacked=1&gt;'>",
)
ATTACK = " ".join(ATTACKS)
#: A credential of no other server.
SECRET = "the-key-of-ada"
#: The secret that signs JSON Web Tokens, of no other server.
SIGNING_KEY = b"a secret of the tests of the console"


def leading_to(url: str, app: A2AApp) -> A2AApp:
    """`app`, whose card lists first an interface of HTTP+JSON at `url`, and then its own of JSON-RPC."""
    inner = app.wsgi_app

    def respond(environ: Any, start_response: Any) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/.well-known/agent-card.json":
            return inner(environ, start_response)
        own = f"http://{environ['HTTP_HOST']}/"
        offered = tuple(
            AgentInterface(url=address, protocol_binding=binding, protocol_version="1.0")
            for address, binding in ((url, "HTTP+JSON"), (own, "JSONRPC"))
        )
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(replace(app.agent_card(own), supported_interfaces=offered).to_dict()).encode()]

    app.wsgi_app = respond
    return app
