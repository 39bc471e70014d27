"""Media types: which of them an agent takes and which a client does (spec 3.1.1, 4.4.1, 4.4.5).

A *mode* is a media type as cards and requests list them: ``text/csv``, ``text/*``, ``*/*``. Modes without a slash, which some
peers write, stand for the whole kind: ``text`` for ``text/*``. Case and parameters do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from a2a_sync.card import AgentCard
from a2a_sync.errors import ContentTypeNotSupportedError
from a2a_sync.types import Part


class Modes:
    """A set of modes, made for many questions. An empty one takes everything: nothing was said."""

    def __init__(self, modes: Iterable[str]) -> None:
        self._listed = tuple(dict.fromkeys(modes))
        self._modes = {_mode(mode) for mode in self._listed}
        self._all = not self._modes or "*/*" in self._modes

    def __contains__(self, media_type: str) -> bool:
        if self._all:
            return True
        plain = _plain(media_type)
        return plain in self._modes or f"{plain.partition('/')[0]}/*" in self._modes

    def __str__(self) -> str:
        return ", ".join(self._listed)


class InputModes:
    """What an agent takes: the card's default modes and those of all its skills, as a request does not name its skill."""

    def __init__(self, card: AgentCard) -> None:
        skills = [mode for skill in card.skills for mode in skill.input_modes]
        self._modes = Modes((*card.default_input_modes, *skills))

    def check(self, parts: Sequence[Part], member: str) -> None:
        """See that each part which names its media type has one that the agent takes. `member` is where the parts are.

        Raises:
            ContentTypeNotSupportedError: one has not.
        """
        for index, part in enumerate(parts):
            if part.media_type and part.media_type not in self._modes:
                raise ContentTypeNotSupportedError(
                    f"{member}[{index}].mediaType: {part.media_type[:100]} is not taken; this agent takes {self._modes}",
                    metadata={"mediaType": part.media_type[:100], "supportedMediaTypes": str(self._modes)},
                )


def _plain(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def _mode(mode: str) -> str:
    plain = _plain(mode)
    return plain if "/" in plain else f"{plain}/*"
