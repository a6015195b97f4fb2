"""The strict JSON reader and writer, and the literal reader."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.json_text import MAX_LITERAL, JsonError, decode, dumps, literal, loads
from tests.conftest import check_case, handed_cases

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=20,
)


def code_of(text: str) -> str:
    with pytest.raises(JsonError) as error:
        loads(text)
    return error.value.code


@pytest.mark.parametrize("case", handed_cases("parser.jsonl", "dump"))
def test_handed_dumps(case: dict[str, Any]) -> None:
    check_case(case, lambda data: {"status": "ok", "text": dumps(data["object"])})


@given(values)
def test_what_is_written_is_read_back(value: Any) -> None:
    text = dumps(value)
    assert loads(text) == value
    assert decode(f"  {text}tail") == (value, len(text) + 2) or isinstance(value, int | float)
    text.encode("utf-8")


@given(values)
def test_a_literal_reads_what_repr_writes(value: Any) -> None:
    assert literal(repr(value)) == value


@given(st.text())
def test_any_text_is_a_value_or_a_json_error(text: str) -> None:
    for read in (loads, literal):
        with contextlib.suppress(JsonError):
            assert read(text) == read(f"{text} ")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "truncated"),
        ("  ", "truncated"),
        ('{"a": {"b": 1', "truncated"),
        ('{"a": "b', "truncated"),
        ('{"a": "\\u12', "truncated"),
        ('{"a": tru', "truncated"),
        ('{"a": 1.', "truncated"),
        ('{"a": 1e+', "truncated"),
        ('{"a": -', "truncated"),
        ("{'a': 1}", "not_json"),
        ("{abc", "not_json"),
        ('{"a": "b\nc"}', "not_json"),
        ('{"a": 1/3}', "not_json"),
        ('{"a": "\\ud800"}', "not_json"),
        ('{"a": ' + "9" * 5000 + "}", "not_json"),
        ('{"a": 1}{', "extra_value"),
        ("1 2", "extra_value"),
        ('{"a": NaN}', "non_finite"),
        ('{"a": -Infinity}', "non_finite"),
        ('{"a": 1e400}', "non_finite"),
        ('{"a": 1, "a": 2}', "duplicate_key"),
        ('{"a": 1, "a": true}', "duplicate_key"),
        ('{"a": {"b": 1}, "a": {"b": 2}}', "duplicate_key"),
        ("[" * 100_000, "too_deep"),
    ],
)
def test_refusals_have_codes(text: str, code: str) -> None:
    assert code_of(text) == code


def test_compatible_duplicates_are_merged() -> None:
    assert loads('{"a": {"b": 1}, "a": {"c": 2, "b": 1.0}}') == {"a": {"b": 1, "c": 2}}


def test_many_duplicates_are_merged_in_linear_time() -> None:
    big = ",".join(f'"{i}":1' for i in range(20_000))
    small = ",".join(f'"a":{{"x{i}":1}}' for i in range(20_000))
    merged = loads(f'{{"a":{{{big}}},{small}}}')
    assert len(merged["a"]) == 40_000


def test_letters_stay_letters_and_half_pairs_stay_writable() -> None:
    assert dumps({"b": "你", "a": "\ud800"}) == '{"a":"\\ud800","b":"你"}'
    assert loads('{"a": "\\ud83d\\ude89"}') == {"a": "🚉"}
    with pytest.raises(ValueError, match="JSON compliant"):
        dumps(float("nan"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{0: [(1, 2.5)], 'a': {'x', 'y'}}", {0: [[1, 2.5]], "a": ["x", "y"]}),
        ("(True, None, -3,)  # note", [True, None, -3]),
        ("{'a': {'b': 1}, 'a': {'c': 2}}", {"a": {"b": 1, "c": 2}}),
    ],
)
def test_literals(text: str, value: Any) -> None:
    assert literal(text) == value


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "not_json"),
        ("x", "not_json"),
        ("f(1)", "not_json"),
        ("{'a': 1 + 1}", "not_json"),
        ("{(1, 2): 3}", "not_json"),
        ("{True: 3}", "not_json"),
        ("{**{}}", "not_json"),
        ("b'x'", "not_json"),
        ("1j", "not_json"),
        ("-True", "not_json"),
        ("f'{1}'", "not_json"),
        ("'a\nb'", "not_json"),
        ("'\x00'", "not_json"),
        ("1e999", "non_finite"),
        ("{'a': 1, 'a': 2}", "duplicate_key"),
        ("[" * 300 + "]" * 300, "not_json"),
        ("[" + "1," * MAX_LITERAL + "]", "not_json"),
    ],
)
def test_what_is_no_literal(text: str, code: str) -> None:
    with pytest.raises(JsonError) as error:
        literal(text)
    assert error.value.code == code


def test_a_literal_never_runs() -> None:
    program = "from agl.json_text import *\ntry: literal('exit(7)')\nexcept JsonError: print('refused')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "refused"


def test_the_writer_agrees_with_the_library() -> None:
    value = {"b": [1, 2.5, None, True], "a": {"é": "\u2028\n"}}
    assert json.loads(dumps(value)) == value
