"""Classification scores."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.metrics import classification, multilabel
from tests.conftest import check_case, handed_cases


def _single(given: dict[str, Any]) -> dict[str, Any]:
    found = classification(given["gold"], given["pred"], given["labels"])
    return {
        "status": "ok",
        "accuracy": found.accuracy,
        "unanswered_rate": found.unanswered_rate,
        "macro_f1_present": found.macro_f1,
        "absent_classes": found.absent,
    }


def _several(given: dict[str, Any]) -> dict[str, Any]:
    found = multilabel(given["gold"], given["pred"], given["labels"])
    return {
        "status": "ok",
        "exact": found.exact,
        "micro_f1": found.micro_f1,
        "macro_f1_present": found.macro_f1,
        "absent_classes": found.absent,
    }


_RUN = {"metrics": _single, "multilabel": _several}


@pytest.mark.parametrize("case", [*handed_cases("verifier.jsonl", *_RUN), *handed_cases("graphs.jsonl", *_RUN)])
def test_handed_case(case: dict[str, Any]) -> None:
    check_case(case, _RUN[case["op"]])


@given(st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 5)), min_size=1))
def test_one_label_per_row_is_a_case_of_several(rows: list[tuple[int, int | None]]) -> None:
    gold, said = [true for true, _ in rows], [answer for _, answer in rows]
    single = classification(gold, said, range(4))
    several = multilabel([{true} for true in gold], [None if a is None else {a} for a in said], range(4))
    assert single.accuracy == several.exact
    assert single.macro_f1 == several.macro_f1
    assert single.absent == several.absent
    if None not in said:
        assert several.micro_f1 == pytest.approx(single.accuracy)


def test_silence_is_not_the_empty_set() -> None:
    assert multilabel([set(), {"a"}], [None, {"a"}], ["a"]).exact == 0.5
    assert multilabel([set(), {"a"}], [set(), {"a"}], ["a"]).exact == 1.0


def test_rows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="one answer per gold row"):
        classification(["a"], [], ["a"])
    with pytest.raises(ValueError, match="gold labels"):
        classification(["b"], ["a"], ["a"])
