"""Kinds of dataclasses and unions: one description for both reading and writing.

A `Record` is the kind of a dataclass, made of `Member` rows. `OneOf` and `Variants` are kinds of unions: the first
identifies the member of the union by a key around it, the second by a tag inside it. The cost of reading depends on the
members that are present, not on those that are possible. The members are defined in the module of each version, the
modes of reading in `fields`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from a2a_sync.codec.fields import Collection, Invalid, Kind, load_at, shown, unexpected


@dataclass(frozen=True, slots=True)
class Member:
    """One member of a dataclass.

    ``json`` is its name on the wire, by default derived from the attribute. The name in snake case and those in
    ``aliases`` are read, too. ``required``: a request without it is refused. ``always``: it is written even if it is
    empty. ``optional``: the protocol distinguishes absent from default, so every value except None is written.
    """

    attribute: str
    kind: Kind
    json: str = ""
    required: bool = False
    always: bool = False
    optional: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name on the wire."""
        return self.json or camel(self.attribute)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that are read."""
        return (self.name, snake(self.json) or self.attribute, *self.aliases)


def required(attribute: str, kind: Kind, json: str = "", *aliases: str) -> Member:
    """A member without which a request is refused."""
    return Member(attribute, kind, json, required=True, aliases=aliases)


def optional(attribute: str, kind: Kind, json: str = "") -> Member:
    """A member for which the protocol distinguishes absent from empty."""
    return Member(attribute, kind, json, optional=True)


def camel(attribute: str) -> str:
    """``context_id`` as ``contextId``."""
    head, *rest = attribute.split("_")
    return head + "".join(word.capitalize() for word in rest)


def snake(name: str) -> str:
    """``contextId`` as ``context_id``."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def load_member(value: dict[str, Any], name: str, kind: Kind, strict: bool) -> Any:
    """The value of a member of an object; None if a lenient reader finds no usable value."""
    found = value.get(name)
    if found is not None:
        return load_at(name, kind.load, found, strict)
    if strict:
        raise Invalid("is required", name)
    return None


class Record:
    """The kind of one dataclass. Absent, null and empty members are equivalent unless a row defines otherwise."""

    empty = None

    def __init__(self, cls: type, *members: Member, constants: Mapping[str, str] | None = None) -> None:
        self.cls = cls
        self.members = members
        self._by_key = {
            key: (member.attribute, member.kind.load, member.name, getattr(member.kind, "plain", None))
            for member in members
            for key in member.names
        }
        self._required = tuple(member for member in members if member.required)
        self._write = _make_writer(members, dict(constants or {}))
        if type(self).dump is Record.dump:
            # A method in between is a tenth of the time of writing an object.
            self.dump = self._write  # type: ignore[method-assign, assignment]

    def load(self, value: Any, strict: bool) -> Any:
        if not isinstance(value, dict):
            raise unexpected("an object", value)
        found = self.found(value, strict)
        for member in self._required:
            if found.get(member.attribute, member.kind.empty) == member.kind.empty:
                if strict:
                    raise Invalid("at least one is required" if member.kind.empty == () else "is required", member.name)
                if member.attribute not in found:
                    kind = member.kind
                    found[member.attribute] = kind.load({}, False) if isinstance(kind, Record) else kind.empty
                    if found[member.attribute] is None:
                        return None
        return self.cls(**found)

    def found(self, value: dict[str, Any], strict: bool) -> dict[str, Any]:
        """The values of the members that are present, by attribute."""
        found: dict[str, Any] = {}
        by_key = self._by_key
        for key, item in value.items():
            if item is not None and key in by_key:
                attribute, load, name, plain = by_key[key]
                loaded = item
                if type(item) is not plain:
                    try:
                        loaded = load(item, strict)
                    except Invalid as invalid:
                        raise invalid.below(name) from None
                    if loaded is None:
                        continue
                # A proxy that reads the other of its names would see another request.
                if strict and attribute in found and found[attribute] != loaded:
                    raise Invalid("is given twice, with different values", name)
                found[attribute] = loaded
        return found

    def dump(self, obj: Any) -> dict[str, Any]:
        """An object of the dataclass on the wire: what is constant, then its members."""
        return self._write(obj)


def _make_writer(members: Sequence[Member], constants: dict[str, str]) -> Callable[[Any], dict[str, Any]]:
    """A function that writes an object as a dict: `constants`, then its members.

    It is compiled, as the methods of dataclasses are: a loop over the members takes twice as long, and with it a tenth of the
    time of a GetTask and a fifth of that of a long history.
    """
    names: dict[str, Any] = {}
    lines = ["def write(obj):", f"    written = {constants!r}"]
    for index, member in enumerate(members):
        present = "value is not None" if member.required or member.always or member.optional else "value"
        lines += [f"    value = obj.{member.attribute}", f"    if {present}:"]
        if member.kind.dump is None:
            lines.append(f"        written[{member.name!r}] = value")
        else:
            names[f"dump{index}"] = member.kind.dump
            lines += [f"        value = dump{index}(value)", "        if value is not None:"]
            lines.append(f"            written[{member.name!r}] = value")
    lines.append("    return written")
    exec("\n".join(lines), names)  # noqa: S102  # nosec B102: only names of this package
    write: Callable[[Any], dict[str, Any]] = names["write"]
    return write


class OneOf:
    """The kind of a union: an object with exactly one of several keys, each the name of one dataclass."""

    empty = None

    def __init__(self, **records: Record) -> None:
        self._attributes = records
        self._records = {camel(attribute): record for attribute, record in records.items()}
        self._by_key = {key: name for attribute in records for name in [camel(attribute)] for key in (attribute, name)}
        self.keys: frozenset[str] = frozenset(self._by_key)
        self._names = {record.cls: (name, record.dump) for name, record in self._records.items()}
        self.classes: tuple[type, ...] = tuple(self._names)

    def load(self, value: Any, strict: bool) -> Any:
        if not isinstance(value, dict):
            raise unexpected("an object", value)
        chosen = ""
        content = None
        for key, item in value.items():
            name = self._by_key.get(key)
            if name is not None and item is not None:
                if chosen and chosen != name:
                    raise Invalid(f"has both {chosen} and {name}")
                if strict and chosen and item != content:
                    raise Invalid("is given twice, with different values", name)
                chosen, content = name, item
        if not chosen:
            if strict:
                raise Invalid(f"needs one of {', '.join(self._records)}")
            return None
        return load_at(chosen, self._records[chosen].load, content, strict)

    def dump(self, obj: Any) -> dict[str, Any]:
        name, dump = self._names[type(obj)]
        return {name: dump(obj)}

    def renamed(self, names: Mapping[tuple[type, str], str]) -> OneOf:
        """The same union of records with other names; see `renamed`."""
        records = {attribute: renamed(record, names) for attribute, record in self._attributes.items()}
        return OneOf(**records)  # type: ignore[arg-type]


class Tagged(Record):
    """A record whose JSON has a tag with its type: ``{"kind": "task", …}``. Objects without the tag are accepted."""

    def __init__(self, tag: str, word: str, cls: type, *members: Member) -> None:
        super().__init__(cls, *members, constants={tag: word})
        self.word = word
        self._tag = tag

    def load(self, value: Any, strict: bool) -> Any:
        if strict and isinstance(value, dict) and (tag := value.get(self._tag)) is not None and tag != self.word:
            raise Invalid(f"must be {self.word}", self._tag)
        return super().load(value, strict)


class Variants:
    """The kind of a union whose JSON names its member by a tag.

    `marks` are members that only one of the records has. Without a tag, the first one present selects the record.
    """

    empty = None

    def __init__(self, tag: str, *records: Tagged, marks: dict[str, str] | None = None) -> None:
        self._tag = tag
        self._by_tag = {record.word: record for record in records}
        self._by_class = {record.cls: record for record in records}
        self._marker_members = marks or {}
        self.classes: tuple[type, ...] = tuple(self._by_class)

    def load(self, value: Any, strict: bool) -> Any:
        if not isinstance(value, dict):
            raise unexpected("an object", value)
        word = value.get(self._tag)
        if word is None or (word == "" and not strict):
            word = next((word for mark, word in self._marker_members.items() if mark in value), None)
        record = self._by_tag.get(word) if isinstance(word, str) else None
        if record is not None:
            return record.load(value, strict)
        if strict:
            problem = "is required" if word is None else f"{shown(str(word))} is none of {', '.join(self._by_tag)}"
            raise Invalid(problem, self._tag)
        return None

    def dump(self, obj: Any) -> dict[str, Any]:
        return self._by_class[type(obj)].dump(obj)


def renamed(kind: Kind, names: Mapping[tuple[type, str], str]) -> Kind:
    """`kind`, in which members have other names on the wire.

    Parameters:
        kind: a record, a union or a collection; any other kind is returned as it is.
        names: the new names by dataclass and attribute: ``{(Message, "message_id"): "id"}``. The old ones are not read.
    """
    if isinstance(kind, Record):
        members = (
            replace(member, json=names.get((kind.cls, member.attribute), member.json), kind=renamed(member.kind, names))
            for member in kind.members
        )
        return Record(kind.cls, *members)
    if isinstance(kind, OneOf):
        return kind.renamed(names)
    if isinstance(kind, Collection) and kind.make is not None:
        return kind.make(renamed(kind.item, names))
    return kind
