"""Media types that agents and clients accept (spec 3.1.1, 4.4.1, 4.4.5).

A *mode* is a media type as cards and requests list them: ``text/csv``, ``text/*``, ``*/*``. A mode without a slash,
which some peers send, means all its subtypes: ``text`` is ``text/*``. Case and parameters are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from a2a_sync.card import AgentCard
from a2a_sync.errors import ContentTypeNotSupportedError
from a2a_sync.types import Part


class MediaTypes:
    """A set of modes. An empty set accepts everything."""

    def __init__(self, modes: Iterable[str]) -> None:
        self._listed = tuple(dict.fromkeys(modes))
        modes = map(_without_parameters, self._listed)
        self._accepted = {mode if "/" in mode else f"{mode}/*" for mode in modes}
        self._accepts_all = not self._accepted or "*/*" in self._accepted

    def __contains__(self, media_type: str) -> bool:
        if self._accepts_all:
            return True
        plain = _without_parameters(media_type)
        return plain in self._accepted or f"{plain.partition('/')[0]}/*" in self._accepted

    def __str__(self) -> str:
        return ", ".join(self._listed)


class InputMediaTypes:
    """The modes that an agent accepts: the defaults of its card and those of all skills (requests name no skill)."""

    def __init__(self, card: AgentCard) -> None:
        skills = [mode for skill in card.skills for mode in skill.input_modes]
        self._accepted = MediaTypes((*card.default_input_modes, *skills))

    def check(self, parts: Sequence[Part], member: str) -> None:
        """Check the media types of `parts`, if they have one. `member` is the path of the parts in the request.

        Raises:
            ContentTypeNotSupportedError: the agent does not accept one of them.
        """
        for index, part in enumerate(parts):
            if part.media_type and part.media_type not in self._accepted:
                raise ContentTypeNotSupportedError(
                    f"{member}[{index}].mediaType: {part.media_type[:100]} is not accepted; this agent accepts {self._accepted}",
                    metadata={"mediaType": part.media_type[:100], "supportedMediaTypes": str(self._accepted)},
                )


def _without_parameters(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()
