"""The library with one thing broken on purpose, once and more for each section: see `tests.conformance.ours.Variant`."""

from __future__ import annotations

from a2a_sync import A2AApp
from tests.conformance.ours import Variant


def _without_the_last_id(app: A2AApp) -> object:
    """Answers with one id for all requests."""

    def answering(environ, start_response):  # type: ignore[no-untyped-def]
        chunks = app(environ, start_response)
        return _Changed(chunks, lambda chunk: chunk.replace(b'"id":7,', b'"id":"7",'))

    return answering


class _Changed:
    """The chunks of an answer, each changed."""

    def __init__(self, chunks, change) -> None:  # type: ignore[no-untyped-def]
        self._chunks = chunks
        self._change = change

    def __iter__(self):  # type: ignore[no-untyped-def]
        return map(self._change, self._chunks)

    def close(self) -> None:
        if hasattr(self._chunks, "close"):
            self._chunks.close()


#: Names and variants.
VARIANTS: dict[str, Variant] = {
    "ids become strings": Variant("D", "ids of JSON-RPC come back as strings", wsgi=_without_the_last_id),
}
