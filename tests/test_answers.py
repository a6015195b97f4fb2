"""Reading submitted values out of text."""

from __future__ import annotations

import contextlib
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.graphs.naming import NameTable
from agl.json_text import dumps
from rewards.answers import AnswerError, answer, boxed, boxed_json, label, label_list, node_list, number, stated_number
from tests.conftest import check_case, handed_cases


def code(read: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(AnswerError) as caught:
        read(*arguments, **named)
    return caught.value.code


@pytest.mark.parametrize(
    "case",
    [
        *handed_cases("parser.jsonl", "answer", "labels"),
        *handed_cases("verifier.jsonl", "answer"),
    ],
)
def test_handed_answers(case: dict[str, Any]) -> None:
    def run(given: dict[str, Any]) -> dict[str, Any]:
        try:
            if "form" not in given:
                return {"status": "ok", "value": label_list(given["text"], given["labels"])}
            names = {key: given[key] for key in ("nodes", "labels") if key in given}
            return {"status": "ok", "value": answer(given["text"], given["form"], given["type"], **names)}
        except AnswerError as error:
            return {"status": "error", "code": error.code}

    check_case(case, run)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("7", 7),
        (" 7.0 ", 7),
        ("7.", 7),
        ("-0.5", Fraction(-1, 2)),
        ("−3", -3),
        ("+.75", Fraction(3, 4)),
        ("2.5e-3", Fraction(1, 400)),
        ("1/3", Fraction(1, 3)),
        ("-1 / 4", Fraction(-1, 4)),
        ("\\frac{1}{3}", Fraction(1, 3)),
        ("$12$", 12),
        ("1,234,567.5", Fraction(2469135, 2)),
    ],
)
def test_numbers(text: str, wanted: Fraction) -> None:
    assert number(text) == wanted


@pytest.mark.parametrize(
    "text",
    ["", "x", "1/0", "1e400", "9" * 10_000, "inf", "nan", "1.2.3", "--1", "1e", "0x10", "1_000", "12,34", "٣", "3 4"],
)
def test_what_is_no_number(text: str) -> None:
    assert code(number, text) == "bad_number"


@given(st.fractions(max_denominator=10**6))
def test_every_fraction_is_read_back(value: Fraction) -> None:
    assert number(str(value)) == value


@given(
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e250, max_value=1e250).filter(
        lambda x: abs(x) > 1e-250 or not x
    )
)
def test_every_float_is_read_back(value: float) -> None:
    assert float(number(repr(value))) == value


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The cost is 31, path 0-4-7-9", 31),
        ("The answer is 5.", 5),
        ("about -0.5 units", Fraction(-1, 2)),
        ("5 + 7 gives a total cost of 5 + 7 = 12", 12),
        ("total = 16 via v1, v2 and A-3", 16),
        ("the length is 7 and so the total is 7; 3 edges", 7),
    ],
)
def test_a_stated_number(text: str, wanted: Fraction) -> None:
    assert stated_number(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("5 or maybe 6", "ambiguous_number"),
        ("12 (nodes 0 to 9)", "ambiguous_number"),
        ("cost 5 or cost 6", "ambiguous_number"),
        ("the cost is 5 + 7", "ambiguous_number"),
        ("none", "bad_number"),
        ("1.5.2", "bad_number"),
        ("cost 1.5.2", "bad_number"),
        ("v1", "bad_number"),
        ("A-1", "bad_number"),
    ],
)
def test_no_stated_number(text: str, wanted: str) -> None:
    assert code(stated_number, text) == wanted


NAMES = ("A-1", "A", "Ann, Jr.", "Striker", "Striker (ice hockey)", "St John’s", "salt and pepper", "[x]", "<3>", "10")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("A-1 - A", ["A-1", "A"]),
        ("A-1->A→Striker", ["A-1", "A", "Striker"]),
        ("Striker (ice hockey), Striker", ["Striker (ice hockey)", "Striker"]),
        ("Ann, Jr., A, and Striker", ["Ann, Jr.", "A", "Striker"]),
        ("salt and pepper and A", ["salt and pepper", "A"]),
        ('["A", "Ann, Jr.", 10]', ["A", "Ann, Jr.", "10"]),
        ("['A', 'St John's']", ["A", "St John’s"]),
        ("[[x], A]", ["[x]", "A"]),
        ("[x]", ["[x]"]),
        ("A-1-A", ["A-1", "A"]),
        ("A 10 Striker", ["A", "10", "Striker"]),
        ("A, A,", ["A", "A"]),
        ("**A** > <3> > Striker", ["A", "<3>", "Striker"]),
        ("A, then 10", ["A", "10"]),
        ("(A,\n<3>)", ["A", "<3>"]),
        ("striker  (ICE hockey)", ["Striker (ice hockey)"]),
    ],
)
def test_lists_of_names(text: str, wanted: list[str]) -> None:
    assert node_list(text, NameTable(NAMES)) == wanted


def test_lists_that_cannot_be_read() -> None:
    table = NameTable(["A", "B", "A, B", "Quay", "QUAY"])
    assert code(node_list, "A, B", table) == "ambiguous_name"
    assert code(node_list, "A, quay", table) == "ambiguous_name"
    assert code(node_list, "A, C", table) == "unknown_name"
    assert code(node_list, "AB", table) == "unknown_name"
    assert code(node_list, "", table) == "no_answer"
    assert code(node_list, "( )", table) == "no_answer"
    assert node_list("[]", table) == []
    assert node_list("A, QUAY", table) == ["A", "QUAY"]


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=8), st.sampled_from([" -> ", "; ", "\n", " → "]))
def test_written_lists_are_read_back(path: list[str], separator: str) -> None:
    assert node_list(separator.join(path), NameTable(NAMES)) == path
    assert node_list(dumps(path), NameTable(NAMES)) == path


LABELS = ("cs.AI", "cs.AIR", "cs.LG", "Rule_Learning", "Art", "Martial art")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("cs.AI", "cs.AI"),
        ("cs.AI.", "cs.AI"),
        ("rule learning", "Rule_Learning"),
        ('"ART"', "Art"),
        ("`cs.lg`", "cs.LG"),
    ],
)
def test_whole_labels(text: str, wanted: str) -> None:
    assert label(text, LABELS) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("cs.AI or cs.LG", "ambiguous_label"),
        ("cs", "unknown_label"),
        ("Learning", "unknown_label"),
        ("Artefact", "unknown_label"),
        ("the label is cs.AIR", "unknown_label"),
        ("", "unknown_label"),
    ],
)
def test_what_is_no_label(text: str, wanted: str) -> None:
    assert code(label, text, LABELS) == wanted


def test_sets_of_labels() -> None:
    assert label_list("[Art, cs.AI and martial art]", LABELS) == ["cs.AI", "Art", "Martial art"]
    assert code(label_list, "Art, Artefact", LABELS) == "unknown_label"
    assert code(label_list, "[]", LABELS) == "no_answer"


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        ('{"cost": 16, "path": ["A", "}"]}', {"cost": 16, "path": ["A", "}"]}),
        ('"cost": 16, "path": ["A", "{"]', {"cost": 16, "path": ["A", "{"]}),
        ("16", 16),
        (" 2.5 ", 2.5),
        ('{\n"nodes": []}', {"nodes": []}),
    ],
)
def test_boxed_json(content: str, wanted: Any) -> None:
    assert boxed_json(f"First \\boxed{{0}}, so \\boxed{{{content}}}.") == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("16", "no_answer"),
        ("\\boxed{16", "no_answer"),
        ("\\boxed{}", "truncated"),
        ("\\boxed{{'cost': 16}}", "not_json"),
        ("\\boxed{16 km}", "extra_value"),
        ('\\boxed{{"a": 1, "a": 2}}', "duplicate_key"),
        ("\\boxed{NaN}", "non_finite"),
    ],
)
def test_boxed_json_that_cannot_be_read(text: str, wanted: str) -> None:
    assert code(boxed_json, text) == wanted


@given(st.dictionaries(st.text(max_size=5), st.lists(st.text(max_size=5), max_size=3), min_size=1, max_size=3))
def test_boxed_json_is_read_back(value: dict[str, list[str]]) -> None:
    text = dumps(value)
    assert boxed_json(f"\\boxed{{{text}}}") == value
    assert boxed_json(f"\\boxed{text}") == value


@pytest.mark.parametrize(
    ("text", "form", "kind", "wanted"),
    [
        ("<think>\\boxed{1}</think>\\boxed{2}", "boxed", "int", 2),
        ("\\boxed{\\text{cs.AI}}", "boxed", "label", "cs.AI"),
        ("\\boxed{\\frac{7}{2}}", "boxed", "float", 3.5),
        ("<answer>3</answer> no, <answer>4</answer> or <answer>5", "tag", "int", 4),
        ("[A, <3>] but [[x]] says [A, B]", "bracket", "nodes", ["[x]"]),
        ("[A, <3>] as in [1], [2]", "bracket", "nodes", ["A", "<3>"]),
        ("The path is [A, Striker].", "text", "nodes", ["A", "Striker"]),
        ("The path is: A -> Striker", "text", "nodes", ["A", "Striker"]),
        ("<<<A>>> and <<< <3> >>>", "angle3", "node", "<3>"),
    ],
)
def test_answers(text: str, form: Any, kind: Any, wanted: Any) -> None:
    assert answer(text, form, kind, nodes=NAMES, labels=LABELS) == wanted


@pytest.mark.parametrize(
    ("text", "form", "kind", "wanted"),
    [
        ("", "text", "int", "no_answer"),
        ("\\boxed{ }", "boxed", "node", "no_answer"),
        ("3", "boxed", "int", "no_answer"),
        ("\\boxed{7.5}", "boxed", "int", "bad_number"),
        ("<answer>3", "tag", "int", "missing_close"),
        ("3</answer>", "tag", "int", "unopened_tag"),
        ("<think>\\boxed{1}", "boxed", "int", "unfinished_think"),
        ("[A, B]", "bracket", "nodes", "unknown_name"),
        ("A", "bracket", "nodes", "no_answer"),
        (">>> A <<<", "angle3", "node", "no_answer"),
    ],
)
def test_answers_that_cannot_be_read(text: str, form: Any, kind: Any, wanted: str) -> None:
    assert code(answer, text, form, kind, nodes=NAMES, labels=LABELS) == wanted


@given(st.text(alphabet="\\boxed{}<>[]/answer0123,.- \n", max_size=60))
def test_any_text_gives_a_value_or_a_code(text: str) -> None:
    for form in ("text", "tag", "boxed", "angle3", "bracket"):
        for kind in ("int", "float", "total", "node", "nodes", "tour", "label"):
            with contextlib.suppress(AnswerError):
                answer(text, form, kind, nodes=NAMES, labels=LABELS)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text", [" " * 50_000, "1," * 20_000, "[" * 50_000, "A, " * 5_000, "\\boxed{" * 2_000, "<" * 50_000]
)
def test_long_texts_are_read_in_time(text: str) -> None:
    for form, kind in (("text", "total"), ("text", "nodes"), ("boxed", "int"), ("bracket", "tour"), ("angle3", "node")):
        with contextlib.suppress(AnswerError):
            answer(text, form, kind, nodes=NAMES)  # type: ignore[arg-type]


def test_the_last_box_counts() -> None:
    assert boxed("\\boxed{1} \\boxed{2} \\boxed{3") == "2"
