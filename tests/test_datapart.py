import subprocess
import sys
import tracemalloc
import typing
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, NoReturn, Optional, TypeVar, Union
from uuid import UUID

import dataclasses_json.core
import pytest
from dataclasses_json import CatchAll, DataClassJsonMixin, LetterCase, Undefined, config, dataclass_json
from hypothesis import given
from hypothesis import strategies as st

from a2a_sync import datapart
from a2a_sync.datapart import from_json, to_json
from a2a_sync.errors import DataPartError
from a2a_sync.types import Artifact, DataPart, Message, Role, TextPart

Cents = NewType("Cents", int)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Size(StrEnum):
    SMALL = "s"


class Corner(Enum):
    TOP_LEFT = (0, 0)


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Address:
    city: str
    zip: str = ""


@dataclass(frozen=True)
class Item:
    name: str
    price: Decimal
    count: int = 1


@dataclass
class Order:
    id: UUID
    address: Address
    items: list[Item]
    placed: datetime
    due: date | None = None
    at: time | None = None
    color: Color = Color.RED
    level: Level = Level.LOW
    size: Size = Size.SMALL
    tags: set[str] = field(default_factory=set)
    notes: dict[str, list[int]] = field(default_factory=dict)
    by_number: dict[int, str] = field(default_factory=dict)
    pair: tuple[int, str] = (0, "")
    many: tuple[float, ...] = ()
    total: Cents = Cents(0)
    kind: Literal["new", "old"] = "new"
    extra: Any = None


ORDER = Order(
    id=UUID(int=7),
    address=Address("Kraków", "30-001"),
    items=[Item("tea", Decimal("3.50"), 2), Item("cup", Decimal("10"))],
    placed=datetime(2025, 11, 9, 10, 30, 0, 123456, tzinfo=timezone(timedelta(hours=2))),
    due=date(2025, 12, 1),
    at=time(8, 15),
    color=Color.BLUE,
    level=Level.HIGH,
    tags={"a", "b"},
    notes={"x": [1, 2]},
    by_number={1: "one"},
    pair=(3, "three"),
    many=(1.5, 2.0),
    total=Cents(450),
    kind="old",
    extra={"free": [1, None, "text"]},
)


def test_an_undecorated_dataclass_with_members_of_every_kind_comes_back_equal():
    assert from_json(to_json(ORDER), Order) == ORDER


def test_leaves_are_written_as_people_would_write_them():
    said = to_json(ORDER)
    assert said["placed"] == "2025-11-09T10:30:00.123456+02:00"
    assert said["due"] == "2025-12-01"
    assert said["at"] == "08:15:00"
    assert said["id"] == "00000000-0000-0000-0000-000000000007"
    assert said["items"] == [{"name": "tea", "price": "3.50", "count": 2}, {"name": "cup", "price": "10", "count": 1}]
    assert said["color"] == "blue"
    assert said["level"] == 2
    assert type(said["level"]) is int
    assert type(said["size"]) is str
    assert sorted(said["tags"]) == ["a", "b"]
    assert said["by_number"] == {"1": "one"}


@pytest.mark.parametrize("moment", ["2025-11-09T10:30:00Z", "2025-11-09T10:30:00+00:00", "2025-11-09T10:30:00.000Z"])
def test_any_iso_form_of_a_moment_is_read(moment):
    assert from_json([moment], list[datetime]) == [datetime(2025, 11, 9, 10, 30, tzinfo=UTC)]


def test_a_naive_datetime_stays_naive():
    @dataclass
    class Stamp:
        at: datetime

    assert from_json(to_json(Stamp(datetime(2025, 1, 2))), Stamp).at == datetime(2025, 1, 2)


@pytest.mark.parametrize(
    ("member", "value", "said"),
    [
        ("id", "7", "Order.id: expected a UUID, got '7'"),
        ("id", 7, "Order.id: expected a UUID as a string, got int"),
        ("address", None, "Order.address: expected an object, got null"),
        ("address", {"city": 5}, "Order.address.city: expected str, got int"),
        ("address", {"city": None}, "Order.address.city: expected str, got null"),
        ("address", {}, "Order.address.city: is missing"),
        ("address", [], "Order.address: expected an object, got list"),
        ("items", {}, "Order.items: expected an array, got dict"),
        ("items", [None], "Order.items[0]: expected an object, got null"),
        ("items", [{"name": "a", "price": 1}, {"name": "b"}], "Order.items[1].price: is missing"),
        ("items", [{"name": "a", "price": "x"}], "Order.items[0].price: expected a decimal number, got 'x'"),
        ("items", [{"name": "a", "price": True}], "Order.items[0].price: expected a decimal number, got bool"),
        ("items", [{"name": "a", "price": 1, "count": "5"}], "Order.items[0].count: expected int, got str"),
        ("items", [{"name": "a", "price": 1, "count": 5.5}], "Order.items[0].count: expected int, got float"),
        ("items", [{"name": "a", "price": 1, "count": True}], "Order.items[0].count: expected int, got bool"),
        ("items", [{"name": "a", "price": 1, "count": None}], "Order.items[0].count: expected int, got null"),
        ("placed", "yesterday", "Order.placed: expected an ISO date and time, got 'yesterday'"),
        ("placed", 1.7e9, "Order.placed: expected an ISO date and time as a string, got float"),
        ("due", "2025-13-01", "Order.due: expected date or null, got str"),
        ("color", "green", "Order.color: expected one of 'red', 'blue', got 'green'"),
        ("level", True, "Order.level: expected one of 1, 2, got True"),
        ("tags", "ab", "Order.tags: expected an array, got str"),
        ("tags", [1], "Order.tags[0]: expected str, got int"),
        ("notes", {"x": [1, "2"]}, "Order.notes.x[1]: expected int, got str"),
        ("by_number", {"one": ""}, "Order.by_number: expected int as name, got 'one'"),
        ("pair", [1], "Order.pair: expected 2 elements, got 1"),
        ("pair", ["1", "x"], "Order.pair[0]: expected int, got str"),
        ("many", [1, "x"], "Order.many[1]: expected float, got str"),
        ("many", [10**400], "Order.many[0]: too large for a float"),
        ("total", "1", "Order.total: expected int, got str"),
        ("kind", "middle", "Order.kind: expected one of 'new', 'old', got 'middle'"),
    ],
)
def test_what_does_not_fit_is_refused_by_class_and_member(member, value, said):
    with pytest.raises(DataPartError) as caught:
        from_json({**to_json(ORDER), member: value}, Order)
    assert str(caught.value) == said


def test_a_missing_member_is_named():
    value = to_json(ORDER)
    del value["placed"]
    with pytest.raises(DataPartError, match=r"^Order\.placed: is missing$"):
        from_json(value, Order)


@pytest.mark.parametrize("value", [None, 5, "x", [], True])
def test_a_dataclass_is_read_from_an_object_only(value):
    with pytest.raises(DataPartError, match=r"^Address: expected an object, got "):
        from_json(value, Address)


def test_a_whole_number_that_a_peer_sent_as_a_double_is_an_int():
    item = from_json({"name": "a", "price": 2.5, "count": 3.0}, Item)
    assert item == Item("a", Decimal("2.5"), 3)
    assert type(item.count) is int


def test_unknown_members_are_passed_over_and_defaults_filled_in():
    assert from_json({"city": "Oslo", "country": "NO"}, Address) == Address("Oslo")


# -- settings of dataclasses-json --------------------------------------------------------------------


@dataclass_json(letter_case=LetterCase.CAMEL)
@dataclass
class Shipment:
    track_number: str
    sent_at: datetime
    weight: int = field(default=0, metadata=config(field_name="grams"))
    secret: str = field(default="", metadata=config(exclude=lambda _: True))
    code: int = field(default=0, metadata=config(encoder=hex, decoder=lambda text: int(text, 16)))


def test_letter_case_field_names_exclusion_and_own_encoders_are_respected():
    shipment = Shipment("x1", datetime(2025, 1, 1, tzinfo=UTC), 5, "hidden", 255)
    said = to_json(shipment)
    assert said == {"trackNumber": "x1", "sentAt": "2025-01-01T00:00:00+00:00", "grams": 5, "code": "0xff"}
    assert from_json(said, Shipment) == Shipment("x1", datetime(2025, 1, 1, tzinfo=UTC), 5, "", 255)


def test_errors_use_the_names_that_stand_in_the_json():
    with pytest.raises(DataPartError, match=r"^Shipment\.grams: expected int, got str$"):
        from_json({"trackNumber": "x", "sentAt": "2025-01-01T00:00:00Z", "grams": "5"}, Shipment)
    with pytest.raises(DataPartError, match=r"^Shipment\.trackNumber: is missing$"):
        from_json({}, Shipment)


def test_a_failing_decoder_of_the_user_is_one_data_part_error():
    with pytest.raises(DataPartError, match=r"^Shipment: .*'green'"):
        from_json({"trackNumber": "x", "sentAt": "2025-01-01T00:00:00Z", "code": "green"}, Shipment)


@dataclass_json(undefined=Undefined.RAISE)
@dataclass
class Closed:
    a: int


@dataclass_json(undefined=Undefined.INCLUDE)
@dataclass
class Open:
    a: int
    rest: CatchAll


@dataclass
class Mixed(DataClassJsonMixin):
    a: int


def test_the_class_decides_about_unknown_members():
    with pytest.raises(DataPartError, match=r"^Closed: .*b"):
        from_json({"a": 1, "b": 2}, Closed)
    assert from_json({"a": 1, "b": 2}, Open) == Open(1, b=2)
    assert to_json(Open(1, b=2)) == {"a": 1, "b": 2}
    assert from_json({"a": 1}, Mixed) == Mixed(1)


@dataclass
class Positive:
    amount: int

    def __post_init__(self):
        if self.amount <= 0:
            raise ValueError("amount must be positive")


def test_a_refusal_by_the_class_itself_is_a_data_part_error():
    with pytest.raises(DataPartError, match=r"^Positive: amount must be positive$"):
        from_json({"amount": 0}, Positive)


@dataclass
class Cat:
    meow: str


@dataclass
class Dog:
    bark: str


@dataclass
class Choice:
    pet: Cat | Dog
    maybe: Optional[Cat] = None  # noqa: UP045
    number: int | str = 0
    items: "list[Cat | Dog]" = field(default_factory=list)
    when: datetime | str = ""
    either: Union[int, None] = None  # noqa: UP007


def test_unions_take_the_arm_that_fits():
    choice = Choice(Dog("w"), Cat("m"), "x", [Cat("1"), Dog("2")], datetime(2025, 1, 1), 4)
    assert from_json(to_json(choice), Choice) == choice
    assert from_json({"pet": {"meow": "x"}, "when": "soon"}, Choice).when == "soon"


def test_a_union_that_nothing_fits_says_what_it_would_take():
    with pytest.raises(DataPartError, match=r"^Choice\.pet: expected Cat or Dog, got dict$"):
        from_json({"pet": {}}, Choice)
    with pytest.raises(DataPartError, match=r"^Choice\.number: expected int or str, got list$"):
        from_json({"pet": {"meow": ""}, "number": []}, Choice)
    with pytest.raises(DataPartError, match=r"^Choice\.maybe\.meow: expected str, got int$"):
        from_json({"pet": {"meow": ""}, "maybe": {"meow": 5}}, Choice)


@dataclass
class Node:
    name: str
    children: list["Node"] = field(default_factory=list)


def test_a_class_may_contain_itself():
    tree = Node("a", [Node("b", [Node("c")]), Node("d")])
    assert from_json(to_json(tree), Node) == tree


def test_what_contains_itself_without_end_is_refused():
    loop = Node("a")
    loop.children.append(loop)
    with pytest.raises(DataPartError, match=r"^Node"):
        to_json(loop)
    endless: dict[str, Any] = {}
    endless["x"] = endless
    with pytest.raises(DataPartError, match=r"^dict"):
        to_json(endless)


class Digits(str):
    """Counts how often it is read."""

    read = 0

    def __new__(cls, text):
        cls.read += 1
        return super().__new__(cls, text)


@dataclass
class Leaf:
    digits: Digits
    kind: Literal["leaf"] = "leaf"


@dataclass
class Add:
    left: "Leaf | Add | Multiply"
    right: "Leaf | Add | Multiply"
    kind: Literal["add"] = "add"


@dataclass
class Multiply:
    left: "Leaf | Add | Multiply"
    right: "list[Leaf | Add | Multiply]"
    kind: Literal["multiply"] = "multiply"


def product(depth: int, kind: str) -> dict[str, Any]:
    """A nested product, in which the members that distinguish the classes come last; `kind` is that of the innermost leaf."""
    value: dict[str, Any] = {"digits": "1", "kind": kind}
    for _ in range(depth):
        value = {"left": value, "right": [{"digits": "2", "kind": "leaf"}], "kind": "multiply"}
    return value


@pytest.mark.parametrize("depth", [12, 98])
def test_a_nested_union_is_read_in_time_that_grows_with_its_size(depth, monkeypatch):
    # 14 levels took four seconds, and each further one doubled the time.
    monkeypatch.setattr(Digits, "read", 0)
    value = from_json(product(depth, "leaf"), Multiply)
    for _ in range(depth):
        assert value.right == [Leaf(Digits("2"))]
        value = value.left
    assert value == Leaf(Digits("1"))
    assert Digits.read < 8 * depth


@pytest.mark.parametrize("depth", [12, 98])
def test_a_nested_union_that_nothing_fits_is_refused_in_time_that_grows_with_its_size(depth, monkeypatch):
    monkeypatch.setattr(Digits, "read", 0)
    with pytest.raises(DataPartError, match=r"^Multiply\.left: expected Leaf or Add or Multiply, got dict$"):
        from_json(product(depth, "branch"), Multiply)
    assert Digits.read < 8 * depth


@dataclass
class Section:
    sections: "dict[str, Section]" = field(default_factory=dict)
    either: "Section | str" = ""
    rows: list[str | list[int]] = field(default_factory=list)


@pytest.mark.parametrize("around", [{"sections": "k" * 60}, {"either": None}])
def test_the_memory_for_values_of_unions_does_not_grow_with_their_paths(around):
    # The path of each of 249,000 empty arrays, at 44 levels, took 900 MB.
    def peak(depth):
        value = {"rows": [[] for _ in range(5000)]}
        for member, name in list(around.items()) * depth:
            value = {member: {name: value} if name else value}
        from_json({"rows": [[]]}, Section)
        tracemalloc.start()
        try:
            from_json(value, Section)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(40) < 1.5 * peak(1)


def test_an_error_in_a_union_has_the_whole_path_at_each_place():
    shared = {"rows": [[], ["x"]]}
    with pytest.raises(DataPartError, match=r"^Section\.sections\.a\.rows\[1\]: expected str or list, got list$"):
        from_json({"sections": {"a": shared}}, Section)
    with pytest.raises(DataPartError, match=r"^list\[1\]\.either\.rows\[1\]: expected str or list, got list$"):
        from_json([{}, {"either": shared}], list[Section])


@dataclass
class _Hashed:
    numbers: set[int] = field(default_factory=set)
    ids: frozenset[UUID] = frozenset()
    names: dict[int, int] = field(default_factory=dict)


_COLLIDING = [number * (2**61 - 1) for number in range(1000)]


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("numbers", _COLLIDING),
        ("ids", [str(UUID(int=number)) for number in _COLLIDING]),
        ("names", {str(number): 0 for number in _COLLIDING}),
    ],
)
def test_many_values_with_one_hash_are_refused(member, value):
    with pytest.raises(DataPartError, match=f"{member}: more than 20 values have the same hash"):
        from_json({member: value}, _Hashed)


def test_equal_values_and_few_with_one_hash_are_accepted():
    # Python has one hash for -1 and -2.
    given = {"numbers": [-1, -2] * 5000 + _COLLIDING[:20], "names": {str(number): number for number in range(5000)}}
    fitted = from_json(given, _Hashed)
    assert fitted.numbers == {-1, -2, *_COLLIDING[:20]}
    assert len(fitted.names) == 5000


def test_equal_values_at_two_places_of_a_union_are_two_objects():
    shared = {"meow": "x"}
    choice = from_json({"pet": shared, "items": [shared, shared]}, Choice)
    assert choice.items == [choice.pet] * 2
    assert choice.items[0] is not choice.items[1]


@dataclass
class Loose:
    anything: Any
    thing: object
    bare: list
    mapping: Mapping[str, int]
    sequence: Sequence[str]
    frozen: frozenset[int]
    text: Annotated[str, "a note"]
    fixed: typing.Literal[1]


def test_hints_that_say_little_take_what_comes():
    loose = Loose([1], {"a": 1}, [None, 1], {"a": 1}, ["x"], frozenset({1}), "t", 1)
    loaded = from_json(to_json(loose), Loose)
    assert (loaded.anything, loaded.thing, loaded.bare, loaded.mapping) == ([1], {"a": 1}, [None, 1], {"a": 1})
    assert (list(loaded.sequence), loaded.frozen, loaded.text) == (["x"], frozenset({1}), "t")


def test_an_error_repeats_only_the_beginning_of_what_a_peer_has_chosen():
    # The path with a long name was made again for each item: an array of 2.5 million behind a name of 5 MB took eight minutes.
    with pytest.raises(DataPartError) as caught:
        from_json({"x" * 10_000: [1, "2"]}, dict[str, list[int]])
    assert str(caught.value) == f"dict.{'x' * 60}…[1]: expected int, got str"
    with pytest.raises(DataPartError) as caught:
        to_json({"x" * 10_000: [1, object()]})
    assert str(caught.value) == f"dict.{'x' * 60}…[1]: object cannot be written as JSON"
    with pytest.raises(DataPartError) as caught:
        from_json({**to_json(ORDER), "kind": "k" * 10_000}, Order)
    assert str(caught.value) == f"Order.kind: expected one of 'new', 'old', got '{'k' * 59}…"


def test_unreadable_type_hints_are_said_to_be_that():
    @dataclass
    class Broken:
        a: "Nowhere"  # noqa: F821

    with pytest.raises(DataPartError, match=r"^Broken: the type hints of Broken cannot be read"):
        from_json({"a": 1}, Broken)


@dataclass
class Blob:
    content: bytes


def test_bytes_are_pointed_to_file_parts():
    with pytest.raises(DataPartError, match=r"^Blob\.content: bytes cannot be written as JSON; send it as a FilePart$"):
        to_json(Blob(b"x"))
    with pytest.raises(DataPartError, match=r"^Blob\.content: bytes cannot"):
        from_json({"content": "x"}, Blob)


def test_data_too_deep_for_any_peer_is_refused():
    deep: list = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(DataPartError, match="deeper than 100 levels"):
        to_json(deep)


# -- plain values -------------------------------------------------------------------------------------------------------

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(PLAIN)
def test_plain_json_values_pass_unchanged(value):
    assert to_json(value) == value
    assert from_json(value, object) == value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "float: nan cannot be written as JSON"),
        ({"a": [1.0, float("inf")]}, "dict.a[1]: inf cannot be written as JSON"),
        ({"a": {"b": object()}}, "dict.a.b: object cannot be written as JSON"),
        ({"a": b"x"}, "dict.a: bytes cannot be written as JSON; send it as a FilePart"),
        ({(1, 2): "x"}, "dict: (1, 2) cannot be a name in a JSON object"),
        ({"a": timedelta(1)}, "dict.a: timedelta cannot be written as JSON"),
        ("\ud800", "str: not JSON: a string contains the lone surrogate \\ud800"),
    ],
)
def test_what_json_cannot_say_is_refused(value, said):
    with pytest.raises(DataPartError) as caught:
        to_json(value)
    assert str(caught.value) == said


def test_a_dict_may_hold_dataclasses_and_dates():
    assert to_json({"to": Address("Oslo"), "at": date(2025, 1, 2), "p": Point(1, 2), "c": Corner.TOP_LEFT}) == {
        "to": {"city": "Oslo", "zip": ""},
        "at": "2025-01-02",
        "p": [1, 2],
        "c": [0, 0],
    }


@pytest.mark.parametrize(("value", "cls"), [("x", str), (1, int), ([1], list), ({"a": 1}, dict), (None, type(None))])
def test_data_can_be_asked_for_as_a_plain_type(value, cls):
    assert from_json(value, cls) == value


def test_data_of_another_plain_type_is_refused():
    with pytest.raises(DataPartError, match=r"^dict: expected an object, got list$"):
        from_json([1], dict)


# -- through parts ------------------------------------------------------------------------------------------------------


def test_a_part_carries_a_dataclass_there_and_back():
    part = DataPart.of(ORDER, metadata={"k": 1})
    assert part.media_type == "application/json"
    assert part.metadata == {"k": 1}
    assert part.data_as(Order) == ORDER
    assert Message(role=Role.USER, parts=(TextPart("x"), part)).data_as(Order) == ORDER
    assert Artifact(parts=(part,)).data_as(Order) == ORDER


def test_a_message_without_a_data_part_says_so():
    with pytest.raises(DataPartError, match=r"^Order: there is no data part$"):
        Message(role=Role.USER, parts=(TextPart("x"),)).data_as(Order)


def test_dataclasses_json_is_loaded_only_when_a_dataclass_is_converted():
    code = (
        "import sys; from a2a_sync.datapart import to_json; to_json({'a': [1]});"
        "print('marshmallow' in sys.modules, 'dataclasses_json' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "False"]


# -- without from_dict --------------------------------------------------------------------------------------------------


Element = TypeVar("Element")


@dataclass
class Box(Generic[Element]):
    inside: Element


@dataclass
class Kinds:
    """Members whose converted values `from_dict` of dataclasses-json copies at most."""

    many: list[int | None] = field(default_factory=list)
    nested: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    colors: dict[Color, Address] = field(default_factory=dict)
    places: set[Cents] = field(default_factory=set)
    either: Address | int | None = None
    box: Box[int] | None = None
    boxes: list[Box[str]] = field(default_factory=list)
    literal: Literal["a", "b"] = "a"
    anything: Any = None
    made: int = field(default=7, init=False)
    order: Order | None = None


@dataclass
class Odd:
    """Members of which `from_dict` makes something else."""

    last: deque[int] = field(default_factory=deque)
    counted: Counter[str] = field(default_factory=Counter)
    ordered: OrderedDict[str, int] = field(default_factory=OrderedDict)
    either: Address | dict[str, str] | None = None


KINDS = st.fixed_dictionaries(
    {},
    optional={
        "many": st.lists(st.none() | st.integers()),
        "nested": st.dictionaries(st.text(), st.lists(st.tuples(st.integers(), st.text()).map(list))),
        "colors": st.dictionaries(st.sampled_from(["red", "blue"]), st.fixed_dictionaries({"city": st.text()})),
        # One at most: equal sets may have different texts.
        "places": st.lists(st.integers(), max_size=1),
        "either": st.none() | st.integers() | st.fixed_dictionaries({"city": st.text()}),
        "box": st.none() | st.fixed_dictionaries({"inside": st.integers()}),
        "boxes": st.lists(st.fixed_dictionaries({"inside": st.text()})),
        "literal": st.sampled_from(["a", "b", "c"]),
        "anything": st.none() | st.lists(st.integers()),
        "made": st.integers(),
        "unknown": st.integers(),
    },
)


def converted(value: Any, cls: type) -> Any:
    try:
        return from_json(value, cls)
    except DataPartError as error:
        return str(error)


@given(KINDS)
def test_a_dataclass_is_what_from_dict_makes_of_it(value: Any) -> None:
    made = converted(value, Kinds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datapart, "_is_plain", lambda cls: False)
        by_from_dict = converted(value, Kinds)
    assert (made, repr(made)) == (by_from_dict, repr(by_from_dict))


def test_values_that_need_no_second_conversion_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise AssertionError("a second conversion takes ten times as long as the first one")

    monkeypatch.setattr(dataclasses_json.core, "_decode_dataclass", refuse)
    value = {"many": [1, None], "order": None, "either": {"city": "Bonn"}, "box": {"inside": 1}}
    assert from_json(value, Kinds).many == [1, None]


def test_members_that_from_dict_makes_keep_their_classes() -> None:
    made = from_json({"last": [1], "counted": {"a": 2}, "ordered": {"a": 1}, "either": {"city": "Bonn"}}, Odd)
    assert (made.last, made.counted, made.ordered) == (deque([1]), Counter(a=2), OrderedDict(a=1))
    assert [type(one) for one in (made.last, made.counted, made.ordered)] == [deque, Counter, OrderedDict]
    assert made.either == Address("Bonn")


def test_other_greenlets_and_threads_run_during_a_long_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(datapart, "sleep", pauses.append)
    from_json([0] * 10_000, list[int])
    from_json({str(number): 0 for number in range(10_000)}, dict[str, int])
    assert pauses == [0] * 4
