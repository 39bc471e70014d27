import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from a2a_sync import jsontext
from a2a_sync.errors import JSONParseError
from a2a_sync.jsontext import MAX_ANSWER_DEPTH, MAX_DEPTH, dumps, loads


def refusal(body, **options):
    with pytest.raises(JSONParseError) as caught:
        loads(body, **options)
    return caught.value.message


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "the body is empty"),
        (b" \r\n\t", "the body is empty"),
        (b"\xef\xbb\xbf", "the body is empty"),
        (b'{"jsonrpc": "2.0",\n "id": 1,', "at line 2 column "),
        (b"{'a': 1}", "line 1 column 2"),
        (b"[1, 2", "line 1 column 6"),
        (b"[1] x", "Extra data at line 1 column 5"),
        (b"hello", "Expecting value at line 1 column 1"),
        (b'"\x01"', "Invalid control character at line 1 column 2"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', 'the key "c" occurs twice in one object'),
        (b'{"a": 1, "\\u0061": 2}', 'the key "a" occurs twice in one object'),
        (b"NaN", "NaN is not JSON"),
        (b'{"a": [Infinity]}', "Infinity is not JSON"),
        (b"-Infinity", "-Infinity is not JSON"),
        (b"1e400", "the number 1e400 is too large"),
        (b'{"a": -1E+999}', "the number -1E+999 is too large"),
        (b"9" * 5000, "a number has more than 1000 digits"),
        (b'["' + b"9" * 3000 + b'", ' + b"9" * 1001 + b"]", "a number has more than 1000 digits"),
        (b"[1.5, -" + b"9" * 1001 + b"]", "a number has more than 1000 digits"),
        (b'"\\ud800"', "a string contains the lone surrogate \\ud800"),
        (b'"\\uDC00\\uD800"', "a string contains the lone surrogate \\udc00"),
        (b'{"\\ud83d": 1}', "a string contains the lone surrogate \\ud83d"),
        (b'"\\\\\\ud800"', "a string contains the lone surrogate \\ud800"),
        (b'"\xed\xa0\x80"', "the body is not UTF-8 (byte 1)"),
        (b'"\xff"', "the body is not UTF-8 (byte 1)"),
        ('{"a": 1}'.encode("utf-16"), "the body is not UTF-8 (byte 0)"),
        ('{"a": 1}'.encode("utf-16-le"), "the body is not UTF-8 (it looks like UTF-16 or UTF-32)"),
        ('{"a": 1}'.encode("utf-32-be"), "the body is not UTF-8 (it looks like UTF-16 or UTF-32)"),
        ("\ud800", "a string contains the lone surrogate \\ud800"),
        (b"[" * 10_000, "nested deeper than 100 levels"),
        (b"[" * 10_000 + b"]" * 10_000, "nested deeper than 100 levels"),
        (b'{"a":' * 101 + b"1" + b"}" * 101, "nested deeper than 100 levels"),
        (b'["]]]]", ' + b"[" * 100 + b"]" * 101, "nested deeper than 100 levels"),
        (b'["\\\\", ' + b"[" * 100 + b"]" * 101, "nested deeper than 100 levels"),
    ],
)
def test_hostile_text_is_refused_in_a_sentence(body, said):
    assert said in refusal(body)
    assert refusal(body).startswith("Invalid JSON: ")


@pytest.mark.parametrize("shift", range(0, 500, 99))
def test_a_number_of_very_many_digits_is_found_wherever_it_is(shift):
    # The time for a number grows with the square of its digits: 1 MB of such numbers took 0.08 seconds, and 50 reads a second all of it.
    text = " " * shift + "[" + "7" * 1000 + "]"
    assert loads(text) == [int("7" * 1000)]
    assert "more than 1000 digits" in refusal(text.replace("[", "[7"))
    assert loads(f'["{text}"]') == [text]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        ('\ufeff{"a": "é"}', {"a": "é"}),
        (b' \n{"a": [1, 2.5, -0.0, 1e308, true, false, null]}\r\n', {"a": [1, 2.5, -0.0, 1e308, True, False, None]}),
        (b"1" * 40, int("1" * 40)),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"\\\\ud800"', "\\ud800"),
        ('"😀"'.encode(), "😀"),
        (b'{"a": {"k": 1}, "b": {"k": 2}}', {"a": {"k": 1}, "b": {"k": 2}}),
        (b"1e-400", 0.0),
        (json.dumps("[{" * 500).encode(), "[{" * 500),
        (json.dumps('\\"[[' * 500).encode(), '\\"[[' * 500),
    ],
)
def test_what_json_allows_is_read(body, value):
    assert loads(body) == value


def test_the_limit_of_depth_is_exact_and_can_be_raised():
    def nested(depth):
        return b"[" * depth + b"]" * depth

    assert loads(nested(MAX_DEPTH))
    assert "deeper than 100" in refusal(nested(MAX_DEPTH + 1))
    assert loads(nested(MAX_ANSWER_DEPTH), max_depth=MAX_ANSWER_DEPTH)
    assert "deeper than 128" in refusal(nested(MAX_ANSWER_DEPTH + 1), max_depth=MAX_ANSWER_DEPTH)


def test_many_brackets_side_by_side_are_not_depth():
    assert len(loads(b"[" + b"[{}]," * 5000 + b"1]")) == 5001


NESTED = st.recursive(st.text('[]{}"\\\\a', max_size=6), lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('[{"\\\\', max_size=3), inner, max_size=4), max_leaves=40)  # fmt: skip


def depth_of(value):
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@given(NESTED, st.integers(0, 40))
def test_depth_is_that_of_the_value_whatever_its_strings_hold(value, more):
    for _ in range(more):
        value = [value, '"]'] if more % 2 else {"}": value}
    text = json.dumps(value)
    assert jsontext._depth(text) == depth_of(value)
    assert jsontext._brackets(text).count(b"[") == text.count("[") + text.count("{") - inside(value)


def inside(value):
    """The opening brackets in the strings of a value."""
    if isinstance(value, str):
        return value.count("[") + value.count("{")
    if isinstance(value, dict):
        return sum(map(inside, value)) + sum(map(inside, value.values()))
    return sum(map(inside, value))


@pytest.mark.parametrize("text", ["[" * 200, "[{" * 100 + "[]", "[]" + "{" * 200, "[[]" * 150])
def test_brackets_that_are_not_closed_are_as_deep_as_they_are_many(text):
    assert jsontext._depth(text) >= 150


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


@given(VALUES)
def test_what_is_written_is_read_back(value):
    assert loads(dumps(value)) == value


@given(VALUES)
def test_what_others_write_in_ascii_is_read_too(value):
    assert loads(json.dumps(value)) == value


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_bytes_raise_anything_but_a_parse_error(body):
    try:
        value = loads(body)
    except JSONParseError:
        return
    assert loads(dumps(value)) == value


LONG_VALUES = st.text(min_size=1, max_size=4).map(lambda text: text * (jsontext.LONG_TEXT // len(text) + 1))


@settings(max_examples=40, deadline=None)
@given(LONG_VALUES, VALUES)
def test_long_texts_are_written_as_all_others(text, value):
    several = {"a": text, "b": [text, value], "c": text + "\n", text: 1}
    assert dumps(several, long_texts=True) == dumps(several)


@pytest.mark.parametrize("character", [*map(chr, range(32)), '"', "\\", "\x7f", "é"])
def test_a_long_text_with_one_special_character_is_escaped(character):
    text = "x" * jsontext.LONG_TEXT + character
    assert dumps([text, text], long_texts=True) == dumps([text, text])


def test_output_is_compact_utf_8_on_one_line():
    assert dumps({"a": [1, "é\n\u2028"], "b": None}) == '{"a":[1,"é\\n\u2028"],"b":null}'.encode()


def test_output_is_the_same_where_python_has_no_encoder_in_c(monkeypatch):
    value = {"a": [1, 2.5, True, None, "é\n"], "b": {"c": {}}}
    monkeypatch.setattr("json.encoder.c_make_encoder", None)
    assert "".join(jsontext._make_encode()(value, 0)).encode() == dumps(value)


@pytest.mark.parametrize(
    "value",
    [float("nan"), [float("-inf")], {"a": object()}, {"a": b"x"}, {(1,): 2}, "\ud800", {"\udfff": 1}, {1, 2}],
)
def test_what_json_cannot_say_is_not_written(value):
    with pytest.raises(ValueError, match=r"^not JSON: "):
        dumps(value)


def test_cycles_and_endless_nesting_are_not_written():
    cycle: list = []
    cycle.append(cycle)
    with pytest.raises(ValueError, match=r"^not JSON: "):
        dumps(cycle)
    deep: list = []
    for _ in range(MAX_ANSWER_DEPTH):
        deep = [deep]
    with pytest.raises(ValueError, match=r"^not JSON: nested deeper than 128 levels$"):
        dumps(deep)
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match=r"^not JSON: "):
        dumps(deep)


@pytest.mark.parametrize("text", ['{"a":1,"b" : {"c":[{"d":2}]}}', '{"\\":":1,"b\\\\":":\\":","c":{"d":":"}}'])
def test_keys_are_counted_outside_of_strings(text: str) -> None:
    assert len(loads(text, max_keys=4)) in (2, 3)
    with pytest.raises(JSONParseError, match="more than 3 keys"):
        loads(text, max_keys=3)


def test_a_request_has_fewer_keys_than_an_answer() -> None:
    text = "{" + ",".join(f'"{number:x}":1' for number in range(300_000)) + "}"
    with pytest.raises(JSONParseError, match=r"^Invalid JSON: more than 2\d{5} keys; send large data as a file$"):
        loads(text)
    assert len(loads(text, max_keys=jsontext.MAX_ANSWER_KEYS)) == 300_000


def test_values_are_counted_outside_of_strings() -> None:
    text = '["a,b,\\",",%s]'
    assert loads(text % ",".join("12"), max_values=1) == ['a,b,",', 1, 2]
    with pytest.raises(JSONParseError, match=r"^Invalid JSON: more than 350000 values; send large data as a file$"):
        loads("[" + "0," * 400_000 + "0]")
    with pytest.raises(JSONParseError, match="more than 1 values"):
        loads("[0,0,0]", max_values=1)
    assert len(loads("[" + "0," * 400_000 + "0]", max_values=None)) == 400_001
    assert len(loads(json.dumps([n / 7 for n in range(400_000)]))) == 400_000


def test_after_a_long_stored_text_other_threads_run(monkeypatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(jsontext.time, "sleep", pauses.append)
    assert jsontext.loads_stored(b'{"a":"x"}') == {"a": "x"}
    assert pauses == []
    assert jsontext.loads_stored(dumps(["x" * 1_100_000])) == ["x" * 1_100_000]
    (pause,) = pauses
    assert 0 < pause <= 0.25


def test_a_long_text_may_have_more_keys() -> None:
    text = '{"a":1,"b":"%s"}'
    assert loads(text % ("x" * 128), max_keys=0)
    with pytest.raises(JSONParseError, match="more than 1 keys"):
        loads(text % ("x" * 64), max_keys=0)


def test_colons_in_strings_are_no_keys() -> None:
    assert loads('["http://a:80/","::\\"::"]', max_keys=0) == ["http://a:80/", '::"::']
