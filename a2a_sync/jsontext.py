"""Reading and writing JSON, strict in both directions.

Python's own decoder guesses encodings, lets the last of two equal keys win, reads ``NaN`` and ``1e400``, and accepts strings
that cannot be encoded as UTF-8. Two readers of such a body can see two different requests, so none of this is read or written
here. This module knows text and plain values, not the protocol.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable
from itertools import accumulate
from math import isinf
from typing import Any, NoReturn

from a2a_sync.errors import JSONParseError

#: How deeply a request may be nested.
MAX_DEPTH = 100
#: How deeply a response may be nested: it wraps the content of a request or an event in a few more levels.
MAX_ANSWER_DEPTH = 128
#: How deeply one event of a task may be nested, so that every response that contains it can be written.
MAX_EVENT_DEPTH = 112

#: A text may have this many arrays and objects, and one more for each `_CHARACTERS_EACH` characters: an empty one of two
#: characters takes a hundred bytes of memory, and everything after the decoder handles each by itself.
MAX_CONTAINERS = 250_000
_CHARACTERS_EACH = 32
#: A request may have so many keys, and one more for each `_CHARACTERS_OF_KEY` characters: the decoder keeps the interpreter for a
#: microsecond for each, and each needs at most 250 bytes. A response, or an event, can contain a whole task.
MAX_KEYS, MAX_ANSWER_KEYS = 250_000, 1_000_000
_CHARACTERS_OF_KEY = 64
#: A request may have so many values, and one more for each `_CHARACTERS_OF_VALUE` characters: numbers have ten usually, and two at
#: least.
MAX_VALUES, _CHARACTERS_OF_VALUE = 250_000, 8
#: A number may have so many digits: the time that an integer takes to read and to write grows with their square.
_MAX_DIGITS = 1000
#: From so many marks between values on, a body takes ten milliseconds and more.
_MANY_MARKS = 16 * 1024
_ADVICE = "; send large data as a file"
#: Counting in shorter texts is cheap.
_SHORT = 4096
_BOM = "\ufeff"
_MARKS = (b",", b":", b"[", b"{")
_NOT_MARKS = bytes(set(range(256)) - set(b'[]{}"'))
_NOT_COLONS = bytes(set(range(256)) - set(b':"'))
_NOT_COMMAS = bytes(set(range(256)) - set(b',"'))
_ALIKE = bytes.maketrans(b"{}", b"[]")
_STEP = {ord("["): 1, ord("]"): -1}
#: From this many characters on a text is long.
LONG_TEXT = 64 * 1024
#: Decoding a text of so many bytes takes a tenth of a second at most. The longest pause after a longer one, in seconds.
_VERY_LONG, _MAX_PAUSE = 1024 * 1024, 0.25
#: What JSON does not allow in a string as it is.
_ESCAPED = ('"', "\\", *map(chr, range(32)))
#: More levels than most texts have.
_SHALLOW = 16


def loads(
    body: bytes | str, *, max_depth: int = MAX_DEPTH, max_keys: int = MAX_KEYS, max_values: int | None = MAX_VALUES
) -> Any:
    """The value of `body`: UTF-8, with or without a byte order mark.

    All objects together may have `max_keys` keys, and one more for each 64 characters of the text. The text may have `max_values`
    values, and one more for each 8 characters; None: any number.

    Raises:
        JSONParseError: it is not JSON that this library accepts; the message says what is wrong, and where.
    """
    text = _decode(body)
    if _has_more_brackets(text, max_depth):
        _check_containers(text)
        if _depth(text) > max_depth:
            raise JSONParseError(f"Invalid JSON: nested deeper than {max_depth} levels")
    if text.count(":") > (most := max_keys + len(text) // _CHARACTERS_OF_KEY):
        _check_marks(text, _NOT_COLONS, most, "keys" if max_values is None else f"keys{_ADVICE}")
    if max_values is not None and text.count(",") > (most := max_values + len(text) // _CHARACTERS_OF_VALUE):
        _check_marks(text, _NOT_COMMAS, most, f"values{_ADVICE}")
    try:
        decoder = _DECODER_OF_DIGITS if len(text) > _MAX_DIGITS and _has_many_digits(text) else _DECODER
        value = decoder.decode(text)
    except json.JSONDecodeError as error:
        raise JSONParseError(
            f"Invalid JSON: {error.msg.removesuffix(' at')} at line {error.lineno} column {error.colno}"
        ) from None
    except RecursionError:
        raise JSONParseError("Invalid JSON: nested too deep") from None
    except ValueError:
        raise JSONParseError("Invalid JSON: a number has too many digits") from None
    if "\\" in text and ("\\ud" in text or "\\uD" in text):
        _refuse_lone_surrogates(value)
    return value


def has_many_values(body: bytes) -> bool:
    """`body` has so many values that it takes long to read, or so many such marks in texts. A body without any takes little time."""
    return sum(map(body.count, _MARKS)) > _MANY_MARKS


def loads_stored(body: bytes) -> Any:
    """The value of JSON that `dumps` has written: nothing is checked.

    After a long text the calling thread pauses for a quarter of the time, at most for 0.25 seconds. The decoder keeps the
    interpreter to its end, and another thread that needs the interpreter some times would wait for several calls.
    """
    if len(body) < _VERY_LONG:
        return json.loads(body)
    began = time.monotonic()
    value = json.loads(body)
    time.sleep(min((time.monotonic() - began) / 4, _MAX_PAUSE))
    return value


def dumps(value: Any, *, max_depth: int = MAX_ANSWER_DEPTH, long_texts: bool = False) -> bytes:
    """`value` as compact UTF-8. `long_texts`: it holds some of `LONG_TEXT` characters or more, which are written faster then.

    Raises:
        ValueError: it cannot be written as JSON (NaN, a datetime, a lone surrogate, a cycle), or is nested too deeply.
    """
    try:
        text = "".join(_encode(value, 0) if not long_texts else _make_encode(_Strings())(value, 0))
        encoded = text.encode()
    except RecursionError:
        raise ValueError("not JSON: nested too deep") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"not JSON: a string contains {_lone(error)}") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if _has_more_brackets(text, max_depth) and _depth(text) > max_depth:
        raise ValueError(f"not JSON: nested deeper than {max_depth} levels")
    return encoded


def _decode(body: bytes | str) -> str:
    if isinstance(body, str):
        text = body
        if not text.isascii():
            _refuse_lone_surrogates(text)
    else:
        try:
            text = str(body, "utf-8")
        except UnicodeDecodeError as error:
            raise JSONParseError(f"Invalid JSON: the body is not UTF-8 (byte {error.start})") from None
        if b"\0" in body[:4]:
            raise JSONParseError("Invalid JSON: the body is not UTF-8 (it looks like UTF-16 or UTF-32)")
    text = text.removeprefix(_BOM)
    if not text or text.isspace():
        raise JSONParseError("Invalid JSON: the body is empty")
    return text


def _refuse_lone_surrogates(value: Any) -> None:
    try:
        "".join(_encode(value, 0)).encode()
    except UnicodeEncodeError as error:
        raise JSONParseError(f"Invalid JSON: a string contains {_lone(error)}") from None


def _lone(error: UnicodeEncodeError) -> str:
    return f"the lone surrogate \\u{ord(error.object[error.start]):04x}"


# The depth is computed from the text, before the decoder recurses: Python's own limit depends on its version and on the
# program. Nearly every body has fewer brackets than the levels that are allowed.


def _has_more_brackets(text: str, limit: int) -> bool:
    if len(text) < _SHORT:
        return text.count("{") + text.count("[") > limit
    # Finding the few brackets of a long text is much faster than counting them.
    for bracket in "{[":
        at = text.find(bracket)
        while at >= 0:
            limit -= 1
            if limit < 0:
                return True
            at = text.find(bracket, at + 1)
    return False


def _has_many_digits(text: str) -> bool:
    """`text` may have more than `_MAX_DIGITS` digits side by side: of so many, each of two samples at that distance is one."""
    return _TWO_DIGITS.search(text[:: _MAX_DIGITS // 2]) is not None


def _check_containers(text: str) -> None:
    most = MAX_CONTAINERS + len(text) // _CHARACTERS_EACH
    # The brackets in strings are removed only where all brackets are too many.
    if text.count("[") + text.count("{") > most and _brackets(text).count(b"[") > most:
        raise JSONParseError(f"Invalid JSON: more than {most} arrays and objects")


def _check_marks(text: str, others: bytes, most: int, what: str) -> None:
    # The marks in strings are removed only where all of them are too many.
    if len(_outside_strings(text, others)) > most:
        raise JSONParseError(f"Invalid JSON: more than {most} {what}")


def _depth(text: str) -> int:
    """The depth of a text; of one whose brackets are not balanced, at least its depth."""
    brackets = _brackets(text)
    for level in range(_SHALLOW):
        # The innermost level of each place. Three times as fast as looking at each bracket.
        left = brackets.replace(b"[]", b"")
        if len(left) == len(brackets):
            return level + max(accumulate(map(_STEP.__getitem__, left)), default=0)
        brackets = left
    return _SHALLOW + max(accumulate(map(_STEP.__getitem__, brackets)), default=0)


def _brackets(text: str) -> bytes:
    """The brackets outside of strings, all of them as square ones."""
    return _outside_strings(text, _NOT_MARKS).translate(_ALIKE)


def _outside_strings(text: str, others: bytes) -> bytes:
    """The characters outside of strings that are not among `others`, which has all but these and quotes."""
    if "\\" in text:
        text = text.replace("\\\\", "").replace('\\"', "")
    # Two quotes side by side enclose nothing, or join two strings to one: neither changes what is outside of strings.
    marks = text.encode().translate(None, others).replace(b'""', b"")
    return b"".join(marks.split(b'"')[::2])


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise JSONParseError(f"Invalid JSON: the key {_shown(key)} occurs twice in one object")
            seen.add(key)
    return result


def _shown(key: str) -> str:
    return json.dumps(key if len(key) <= 60 else key[:60] + "…")


def _float(digits: str) -> float:
    number = float(digits)
    if isinf(number):
        raise JSONParseError(f"Invalid JSON: the number {digits[:40]} is too large")
    return number


def _int(digits: str) -> int:
    if len(digits.removeprefix("-")) > _MAX_DIGITS:
        raise JSONParseError(f"Invalid JSON: a number has more than {_MAX_DIGITS} digits")
    return int(digits)


def _constant(name: str) -> NoReturn:
    raise JSONParseError(f"Invalid JSON: {name} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)
#: It calls a function for each integer, which the other one reads by itself.
_DECODER_OF_DIGITS = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_float, parse_int=_int, parse_constant=_constant
)
_TWO_DIGITS = re.compile("[0-9]{2}")
# A cycle is detected by its depth.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":"))


def _make_encode(strings: Callable[[str], str] = json.encoder.encode_basestring) -> Callable[[Any, int], Iterable[str]]:
    """The function of C that `JSONEncoder.encode` makes again for each value, which takes as long as a small value itself."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return lambda value, level: _ENCODER.iterencode(value)
    # In the order of the encoder's attributes; without a check for cycles it has no state, so threads share it.
    encode: Callable[[Any, int], Iterable[str]] = make(
        None, _ENCODER.default, strings, None, ":", ",", False, False, False
    )
    return encode


class _Strings:
    """Writes the strings of one value: a long one once, however often it occurs, as an answer is in an artifact and in the history.

    The encoder of C looks at each character of a string twice. A function of Python takes longer for each short string.
    """

    def __init__(self) -> None:
        self._written: dict[int, str] = {}

    def __call__(self, text: str) -> str:
        if len(text) < LONG_TEXT:
            return json.encoder.encode_basestring(text)
        written = self._written.get(id(text))
        if written is None:
            plain = not any(map(text.__contains__, _ESCAPED))
            written = self._written[id(text)] = f'"{text}"' if plain else json.encoder.encode_basestring(text)
        return written


_encode = _make_encode()
