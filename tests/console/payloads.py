"""Texts and files that would run code, load something or change the page if a wall were missing."""

from __future__ import annotations

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000080000000808020000004b6d29dc00000011"
    "49444154789c63e0cf4ec38a1886960400cc43380123b6457d0000000049454e44ae426082"
)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><script>parent.hacked = 1</script></svg>'
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
)
ATTACK = " ".join(ATTACKS)
#: A credential of no other server.
SECRET = "the-key-of-ada"
