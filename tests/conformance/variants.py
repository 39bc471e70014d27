"""The library with one thing broken on purpose, once and more for each section: see `tests.conformance.ours.Variant`.

A variant is found when a check of its own section fails; `tests/conformance/test_variants.py` sees to it. After a change here
``make conformance`` writes the page anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from a2a_sync import A2AApp
from tests.conformance.ours import Variant


class _Rewritten:
    """The chunks of an answer, each changed."""

    def __init__(self, chunks: Iterable[bytes], change: Callable[[bytes], bytes]) -> None:
        self._chunks = chunks
        self._change = change

    def __iter__(self) -> Iterator[bytes]:
        return map(self._change, self._chunks)

    def close(self) -> None:
        if hasattr(self._chunks, "close"):
            self._chunks.close()


def rewriting(change: Callable[[bytes], bytes]) -> Callable[[A2AApp], Any]:
    """For `Variant.wsgi`: every chunk of every answer is changed, to one of the same length."""

    def wsgi(app: A2AApp) -> Any:
        return lambda environ, start_response: _Rewritten(app(environ, start_response), change)

    return wsgi


#: Names and variants.
VARIANTS: dict[str, Variant] = {
    "other ids": Variant(
        "D",
        "ids of JSON-RPC that are 7 come back as 8",
        wsgi=rewriting(lambda chunk: chunk.replace(b'"id":7,', b'"id":8,')),
    ),
}
