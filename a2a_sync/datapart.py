"""Users' own dataclasses in data parts: to JSON and back, by way of dataclasses-json.

dataclasses-json decides what a class looks like in JSON (letter case, field names, custom encoders and decoders, unknown
members). It converts what does not fit instead of refusing it, so every value is checked against the class's type hints
before it gets there. The protocol's own types never come here. dataclasses-json takes long to import, so it is imported
by the functions that need it; all of them may be called from any thread.
"""

from __future__ import annotations

import types
import typing
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from math import isfinite
from time import sleep
from typing import Any, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from a2a_sync.errors import DataPartError
from a2a_sync.jsontext import MAX_DEPTH, dumps

_T = TypeVar("_T")
#: What became of each value inside a union that was tried as a union, or its refusal: by its id and that of the union. With the
#: union, so that its id stays its own.
_Tried: TypeAlias = dict[tuple[int, int], tuple[Any, Any]]
#: So many values of one array or object are converted before other threads and greenlets run.
_VALUES_AT_ONCE = 4096
#: So many characters of a value, or of a name that a peer has chosen, are in an error.
_SHOWN = 60
#: So many different values with one hash are accepted among the values of a set, or the keys of a mapping; below the second number
#: of values any.
_MAX_EQUAL_HASHES, _MANY_VALUES = 20, 1000


def to_json(obj: object) -> Any:
    """`obj` as a JSON value: a dataclass instance (or a list, a dict … of them), or a value that is JSON already.

    Dates and times become ISO 8601 strings, `Decimal` and `UUID` strings, an enum member its value.

    Raises:
        DataPartError: JSON cannot represent it; the message names the member.
    """
    where = type(obj).__name__
    try:
        value = _to_plain_json(obj, where)
        dumps(value, max_depth=MAX_DEPTH)
    except RecursionError:
        raise DataPartError(f"{where}: nested too deep, or within itself") from None
    except DataPartError:
        raise
    except ValueError as error:
        raise DataPartError(f"{where}: {error}") from None
    return value


def from_json(value: Any, cls: type[_T]) -> _T:
    """An instance of `cls` from a JSON value: a dataclass, or a hint such as ``list[Order]``.

    Members are taken as their type hints say. Only values that JSON does not distinguish are converted: a whole number is an int
    or a float, an array any collection, a string a date, a time, a `Decimal` or a `UUID`.

    Raises:
        DataPartError: a member is missing or does not fit; the message names it: ``Order.address.city: expected str,
            got int``.
    """
    where = getattr(cls, "__name__", str(cls))
    try:
        fitted: _T = _convert(value, cls, None)
    except RecursionError:
        raise DataPartError(f"{where}: nested too deep") from None
    except _Misfit as error:
        raise DataPartError(f"{where}{error.path()}: {error}") from error.__cause__
    return fitted


# -- to JSON ------------------------------------------------------------------------------------------------------------


def _to_plain_json(value: Any, where: str) -> Any:
    if isinstance(value, Enum):
        return _to_plain_json(value.value, where)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if not isfinite(value):
            raise DataPartError(f"{where}: {value} cannot be written as JSON")
        return value
    if isinstance(value, Mapping):
        named = ((_key(key, where), item) for key, item in value.items())
        return {name: _to_plain_json(item, f"{where}.{_shortened(name)}") for name, item in named}
    if isinstance(value, (list, tuple, AbstractSet)):
        return [_to_plain_json(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if is_dataclass(value) and not isinstance(value, type):
        return _to_plain_json(_to_dict(value, where), where)
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    advice = "; send it as a FilePart" if isinstance(value, (bytes, bytearray)) else ""
    raise DataPartError(f"{where}: {type(value).__name__} cannot be written as JSON{advice}")


def _key(key: Any, where: str) -> str:
    if isinstance(key, Enum):
        key = key.value
    if isinstance(key, bool) or not isinstance(key, (str, int)):
        raise DataPartError(f"{where}: {key!r} cannot be a name in a JSON object")
    return str(key)


def _to_dict(obj: Any, where: str) -> dict[str, Any]:
    from dataclasses_json import DataClassJsonMixin

    try:
        return DataClassJsonMixin.to_dict(obj)
    except RecursionError:
        raise
    except Exception as error:
        raise DataPartError(f"{where}: {error}") from error


# -- from JSON ----------------------------------------------------------------------------------------------------------


class _Misfit(Exception):
    """A value does not fit. Each container around it adds a step, so that only values that do not fit have a path."""

    def __init__(self, text: str, *steps: str) -> None:
        super().__init__(text)
        self._steps = list(steps)

    def add(self, step: str) -> None:
        self._steps.append(step)

    def path(self) -> str:
        return "".join(reversed(self._steps))

    def copy(self) -> _Misfit:
        return _Misfit(str(self), *self._steps)


class _Field(NamedTuple):
    name: str
    json: str
    hint: Any
    decoded_by_user: bool
    init: bool
    required: bool


@lru_cache(maxsize=256)
def _fields(cls: type) -> dict[str, _Field]:
    """The members of a dataclass by every name that dataclasses-json reads them under."""
    from dataclasses_json import CatchAll
    from dataclasses_json.core import _user_overrides_or_exts

    hints = typing.get_type_hints(cls, include_extras=True)
    overrides = _user_overrides_or_exts(cls)  # type: ignore[no-untyped-call]
    table: dict[str, _Field] = {}
    for field in fields(cls):
        override = overrides[field.name]
        name = override.letter_case(field.name) if override.letter_case else field.name
        hint = hints[field.name]
        optional = field.default is not MISSING or field.default_factory is not MISSING or hint == CatchAll
        row = _Field(field.name, name, hint, override.decoder is not None, field.init, field.init and not optional)
        table.setdefault(field.name, row)
        table[name] = row
    return table


@lru_cache(maxsize=256)
def _is_plain(cls: type) -> bool:
    """With converted members `from_dict` does nothing else than to call `cls`, in ten times the time of their conversion."""
    from dataclasses_json import CatchAll

    config = getattr(cls, "dataclass_json_config", None) or {}
    rows = _fields(cls).values()
    return not config.get("undefined") and all(
        not row.decoded_by_user and row.hint != CatchAll and _is_kept(row.hint) for row in rows
    )


def _is_kept(hint: Any) -> bool:
    """`from_dict` returns a converted value of this type as it is, or a copy of the same type."""
    hint = _unwrap_hint(hint)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    plain = origin or hint
    if origin is typing.Union or origin is types.UnionType:
        arms = [typing.get_origin(arm) or arm for arm in map(_unwrap_hint, arguments)]
        # It tries an object as each dataclass, though another arm has taken it.
        mapping = any(isinstance(arm, type) and issubclass(arm, Mapping) for arm in arms)
        return all(map(_is_kept, arguments)) and not (mapping and any(map(is_dataclass, arms)))
    if plain in (list, tuple, set, frozenset, dict):
        return all(_is_kept(argument) for argument in arguments if argument is not Ellipsis)
    return not isinstance(plain, type) or issubclass(plain, (str, Enum)) or not issubclass(plain, Collection)


def _fit_dataclass(value: Any, cls: type, tried: _Tried | None) -> Any:
    if not isinstance(value, dict):
        raise _mismatch("an object", value)
    from dataclasses_json import DataClassJsonMixin
    from dataclasses_json.cfg import global_config

    try:
        table = _fields(cls)
    except Exception as error:
        raise _Misfit(f"the type hints of {cls.__name__} cannot be read: {error}") from error
    fitted = {}
    for key, item in value.items():
        field = table.get(key)
        if field is not None and (item is None or not field.decoded_by_user):
            try:
                item = _convert(item, field.hint, tried)
            except _Misfit as error:
                error.add(f".{key}")
                raise
        fitted[key] = item
    present = {id(table[key]) for key in value if key in table}
    for field in table.values():
        if field.required and id(field) not in present:
            raise _Misfit("is missing", f".{field.json}")
    try:
        if not global_config.decoders and _is_plain(cls):
            return cls(**{table[key].name: item for key, item in fitted.items() if key in table and table[key].init})
        # Unbound, so that classes without the mixin serve as well.
        return DataClassJsonMixin.from_dict.__func__(cls, fitted)  # type: ignore[attr-defined]
    except RecursionError:
        raise
    except Exception as error:
        raise _Misfit(str(error)) from error


def _convert(value: Any, hint: Any, tried: _Tried | None) -> Any:
    """`value` as what `hint` says, with nothing converted that carries information.

    `tried` has the unions inside the outermost one; None outside of any.
    """
    hint = _unwrap_hint(hint)
    if hint is Any or hint is object or isinstance(hint, TypeVar):
        return value
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Union or origin is types.UnionType:
        return _fit_union(value, arguments, tried)
    if origin is typing.Literal:
        if not any(type(value) is type(choice) and value == choice for choice in arguments):
            raise _Misfit(f"expected one of {', '.join(map(repr, arguments))}, got {_abbreviated(value)}")
        return value
    plain = origin or hint
    if not isinstance(plain, type):
        return value
    if is_dataclass(plain):
        return _fit_dataclass(value, plain, tried)
    if issubclass(plain, Enum):
        return _fit_enum(value, plain)
    if plain in _SCALARS:
        return _SCALARS[plain](value)
    for scalar in (str, int, float):
        if issubclass(plain, scalar):
            return plain(_SCALARS[scalar](value))
    if issubclass(plain, (bytes, bytearray)):
        raise _Misfit(f"{plain.__name__} cannot be written as JSON; send it as a FilePart")
    if issubclass(plain, Mapping):
        return _fit_mapping(value, arguments, tried)
    if issubclass(plain, Collection):
        return _fit_collection(value, plain, arguments, tried)
    if isinstance(value, plain):
        return value
    raise _mismatch(plain.__name__, value)


def _unwrap_hint(hint: Any) -> Any:
    while True:
        if hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif hasattr(hint, "__metadata__"):
            hint = hint.__origin__
        else:
            return types.NoneType if hint is None else hint


def _fit_union(value: Any, arms: tuple[Any, ...], tried: _Tried | None) -> Any:
    if not isinstance(value, (dict, list)):
        fitted = _try_arms(value, arms, tried)
    elif tried is None:
        fitted = _try_arms(value, arms, {})
    else:
        # An arm may be refused for its last member, when all others are converted. The next arm has members with the same unions:
        # without this, each level of a recursive union doubles the time.
        key = (id(value), id(arms))
        if key not in tried:
            tried[key] = (arms, _try_arms(value, arms, tried))
        _, fitted = tried[key]
    if isinstance(fitted, _Misfit):
        # A new one: each raise adds a traceback, and each container a step.
        raise fitted.copy() from fitted.__cause__
    return fitted


def _try_arms(value: Any, arms: tuple[Any, ...], tried: _Tried | None) -> Any:
    """`value` as the first arm that it fits, or the refusal."""
    if type(value) in arms and (value is None or isinstance(value, (int, float))):
        return value
    refusals = []
    for arm in arms:
        try:
            return _convert(value, arm, tried)
        except _Misfit as error:
            refusals.append((arm, error.with_traceback(None)))
    # A refusal from inside a member says more than that nothing fits.
    inner = [error for arm, error in refusals if isinstance(value, dict) and is_dataclass(_unwrap_hint(arm))]
    if len(inner) == 1:
        return inner[0]
    listed = " or ".join("null" if arm is types.NoneType else getattr(arm, "__name__", str(arm)) for arm in arms)
    return _mismatch(listed, value)


def _fit_enum(value: Any, cls: type[Enum]) -> Any:
    for member in cls:
        said = _to_plain_json(member.value, cls.__name__)
        if said == value and isinstance(said, bool) == isinstance(value, bool):
            return member
    choices = ", ".join(repr(member.value) for member in cls)
    raise _Misfit(f"expected one of {choices}, got {_abbreviated(value)}")


def _fit_mapping(value: Any, arguments: tuple[Any, ...], tried: _Tried | None) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise _mismatch("an object", value)
    key_hint, item_hint = arguments if len(arguments) == 2 else (Any, Any)
    key_hint = _unwrap_hint(key_hint)
    keys = [_fit_key(key, key_hint, tried) for key in value]
    _check_hashes(keys)
    fitted: dict[Any, Any] = {}
    for number, (fitting, (key, item)) in enumerate(zip(keys, value.items(), strict=True), 1):
        if not number % _VALUES_AT_ONCE:
            sleep(0)
        try:
            fitted[fitting] = _convert(item, item_hint, tried)
        except _Misfit as error:
            error.add(f".{_shortened(key)}")
            raise
    return fitted


def _fit_key(key: str, hint: Any, tried: _Tried | None) -> Any:
    if hint is int:
        try:
            return int(key)
        except ValueError:
            raise _Misfit(f"expected int as name, got {_abbreviated(key)}") from None
    return _convert(key, hint, tried)


def _fit_collection(value: Any, plain: type, arguments: tuple[Any, ...], tried: _Tried | None) -> Any:
    if not isinstance(value, list):
        raise _mismatch("an array", value)
    hints = list(arguments[:1] or (Any,)) * len(value)
    if issubclass(plain, tuple) and arguments and arguments[-1] is not Ellipsis:
        hints = list(arguments)
        if len(hints) != len(value):
            raise _Misfit(f"expected {len(hints)} elements, got {len(value)}")
    items: list[Any] = []
    try:
        for number, (item, hint) in enumerate(zip(value, hints, strict=True), 1):
            if not number % _VALUES_AT_ONCE:
                sleep(0)
            items.append(_convert(item, hint, tried))
    except _Misfit as error:
        error.add(f"[{len(items)}]")
        raise
    if issubclass(plain, (set, frozenset)):
        _check_hashes(items)
    for kind in (tuple, set, frozenset):
        if issubclass(plain, kind):
            return kind(items)
    return items


def _check_hashes(values: list[Any]) -> None:
    """Refuse values of which a peer has chosen very many with one hash: each is compared with all of them.

    The hashes of texts have a random part, those of numbers and of `UUID` have none.
    """
    if len(values) < _MANY_VALUES:
        return
    crowded = {one for one, number in Counter(map(hash, values)).items() if number > _MAX_EQUAL_HASHES}
    different: dict[int, list[Any]] = {}
    for value in values if crowded else ():
        if (one := hash(value)) in crowded:
            alike = different.setdefault(one, [])
            if value not in alike:
                alike.append(value)
            if len(alike) > _MAX_EQUAL_HASHES:
                raise _Misfit(f"more than {_MAX_EQUAL_HASHES} values have the same hash")


def _fit_int(value: Any) -> int:
    # Many peers carry every number as a double: 5 arrives as 5.0.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _mismatch("int", value)
    return value


def _fit_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _mismatch("float", value)
    try:
        return float(value)
    except OverflowError:
        raise _Misfit("too large for a float") from None


def _fit_decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise _mismatch("a decimal number", value)
    try:
        return Decimal(str(value))
    except ArithmeticError:
        raise _Misfit(f"expected a decimal number, got {_abbreviated(value)}") from None


def _instance_converter(cls: type, name: str) -> Callable[[Any], Any]:
    def fit(value: Any) -> Any:
        if not isinstance(value, cls):
            raise _mismatch(name, value)
        return value

    return fit


def _parser_converter(parse: Callable[[str], Any], name: str) -> Callable[[Any], Any]:
    def fit(value: Any) -> Any:
        if not isinstance(value, str):
            raise _mismatch(f"{name} as a string", value)
        try:
            return parse(value)
        except ValueError:
            raise _Misfit(f"expected {name}, got {_abbreviated(value)}") from None

    return fit


_SCALARS: dict[type, Callable[[Any], Any]] = {
    str: _instance_converter(str, "str"),
    bool: _instance_converter(bool, "bool"),
    types.NoneType: _instance_converter(types.NoneType, "null"),
    int: _fit_int,
    float: _fit_float,
    Decimal: _fit_decimal,
    datetime: _parser_converter(datetime.fromisoformat, "an ISO date and time"),
    date: _parser_converter(date.fromisoformat, "an ISO date"),
    time: _parser_converter(time.fromisoformat, "an ISO time"),
    UUID: _parser_converter(UUID, "a UUID"),
}


def _mismatch(wanted: str, value: Any) -> _Misfit:
    return _Misfit(f"expected {wanted}, got {'null' if value is None else type(value).__name__}")


def _abbreviated(value: Any) -> str:
    return _shortened(repr(value))


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
