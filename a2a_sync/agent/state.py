"""The state that the runs of a context share: a small JSON object, read once and changed atomically.

Concurrent changes are serialised: the second run retries with the result of the first. The module is independent of
stores and runs; a `State` receives functions for reading, writing and locking.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar

from a2a_sync.agent.memory import StoredValue
from a2a_sync.jsontext import dumps
from a2a_sync.stores.base import StoredState
from a2a_sync.types import JSON

_T = TypeVar("_T")

_MISSING = object()


# -- read-only values: a change of them would not be stored -------------------------------------------------------------


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return _FrozenDict({key: _frozen(one) for key, one in value.items()})
    if isinstance(value, list):
        return _FrozenList(map(_frozen, value))
    return value


def _refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise TypeError("what is read from the state is read-only: set the key again, or use context.state.change")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value


class _CopiesAsPlain:
    """Copies and pickles are plain containers, which can be changed."""

    def copy(self) -> Any:
        return _plain(self)

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> Any:
        return _plain(self)

    def __reduce_ex__(self, protocol: object) -> tuple[Any, tuple[Any]]:
        return _identity, (_plain(self),)


def _identity(value: Any) -> Any:
    return value


class _FrozenDict(_CopiesAsPlain, dict[str, Any]):
    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse


class _FrozenList(_CopiesAsPlain, list[Any]):
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse


# -- the state ----------------------------------------------------------------------------------------------------------


class _Snapshot(NamedTuple):
    version: int
    value: Mapping[str, JSON]


class State(StoredValue, _CopiesAsPlain, MutableMapping[str, JSON]):
    """The shared state of all tasks of a context, kept by the store: JSON values by string keys.

    Reads return the state of the first read or of the last own change. Each change is stored immediately and is applied
    to the current state, so that changes of other runs are preserved. Use `change` for values that depend on the old
    one. Values are read-only; their copies (`copy`, `deepcopy`, `pickle`), and those of the state, are plain
    dictionaries and lists. Changes raise:

    - `TaskCancelled`: the run may not write any more.
    - `ValueError`: the value is not JSON, or the state would exceed `Limits.max_context_state_bytes`.
    - `StoreError`: the store failed.
    """

    _snapshot: _Snapshot | None = None

    def change(self, function: Callable[[dict[str, JSON]], _T]) -> _T:
        """Call `function` with the state as a plain dictionary, store the changes atomically, and return its result.

        The function is called again if another run has changed the state meanwhile, so it must have no side effects.
        """
        return self._apply(partial(self._attempt, function))

    def _attempt(self, function: Callable[[dict[str, JSON]], _T], current: StoredState) -> _T:
        value = json.loads(current.body)
        result = function(value)
        body = _encoded(value)
        if body == current.body:
            self._snapshot = _Snapshot(current.version, _frozen(value))
        else:
            self._write(body, current.version)
            self._snapshot = _Snapshot(current.version + 1, _frozen(json.loads(body)))
        return result

    # -- as a mapping --

    def _value(self) -> Mapping[str, JSON]:
        if self._snapshot is None:
            current = self._read()
            self._snapshot = _Snapshot(current.version, _frozen(json.loads(current.body)))
        return self._snapshot.value

    def __getitem__(self, key: str) -> JSON:
        return self._value()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._value())

    def __len__(self) -> int:
        return len(self._value())

    def __setitem__(self, key: str, value: JSON) -> None:
        self.update({key: value})

    def __delitem__(self, key: str) -> None:
        self.pop(key)

    def update(self, other: Mapping[str, JSON] | Iterable[tuple[str, JSON]] = (), /, **values: JSON) -> None:  # type: ignore[override]
        """Set several keys in one step."""
        new = dict(other, **values)
        self.change(lambda state: state.update(new))

    def pop(self, key: str, default: Any = _MISSING) -> Any:
        """Remove a key and return its value; for a missing key, return `default` if given, else raise `KeyError`."""
        return self.change(lambda state: state.pop(key) if default is _MISSING else state.pop(key, default))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of a key, which is set to `default` first if it is missing."""
        self.change(lambda state: state.setdefault(key, default))
        return self[key]

    def clear(self) -> None:
        """Remove all keys, atomically."""
        self.change(dict.clear)

    def __repr__(self) -> str:
        return f"State({dict(self)!r})"


def _encoded(value: dict[str, JSON]) -> bytes:
    for key in value:
        if not isinstance(key, str):
            raise ValueError(f"state: a key is a string, not {key!r}")
    try:
        return dumps(value)
    except ValueError as error:
        raise ValueError(f"state: {error}") from None
