"""Folding, looking names up, natural order, renaming."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.graphs.named import NamedGraph
from agl.graphs.naming import NameTable, NamingError, collisions, fold, natural_key, node_id, relabel
from tests.conftest import check_case, handed_cases

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(
    lambda name: name.strip() != ""
)


def run_name(data: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"status": "ok", "value": NameTable(data["declared"]).name(data["mention"])}
    except NamingError as error:
        return {"status": "error", "code": error.code}


@pytest.mark.parametrize("case", handed_cases("parser.jsonl", "name"))
def test_handed_names(case: dict[str, Any]) -> None:
    check_case(case, run_name)


@pytest.mark.parametrize("case", handed_cases("graphs.jsonl", "canonical_names"))
def test_handed_collisions(case: dict[str, Any]) -> None:
    check_case(
        case,
        lambda data: {
            "status": "ok",
            "distinct": len({fold(name) for name in data["names"]}),
            "collisions": duplicates(data["names"]),
        },
    )


def duplicates(spellings: list[str]) -> list[list[str]]:
    """`collisions`, with spellings that stand twice shown twice as in the handed cases."""
    return [[name for name in spellings if name in group] for group in collisions(spellings)]


def run_relabel(data: dict[str, Any]) -> dict[str, Any]:
    graph = NamedGraph.from_edges(data["nodes"], data["edges"])
    try:
        renamed = relabel(graph, data["mapping"])
        back = dict(zip(graph.nodes, renamed.nodes, strict=True))
        outcome: dict[str, Any] = {"status": "ok", "edges": [list(edge[:2]) for edge in renamed.edges]}
        if "answer" in data:
            outcome["answer"] = [back[node_id(node)] for node in data["answer"]]
        return outcome
    except NamingError as error:
        return {"status": "error", "code": error.code}


@pytest.mark.parametrize("case", handed_cases("graphs.jsonl", "relabel"))
def test_handed_renamings(case: dict[str, Any]) -> None:
    check_case(case, run_relabel)


@pytest.mark.parametrize("case", handed_cases("graphs.jsonl", "ids"))
def test_handed_ids(case: dict[str, Any]) -> None:
    def run(data: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"status": "ok", "ids": [node_id(value) for value in data["values"]]}
        except NamingError as error:
            return {"status": "error", "code": error.code}

    check_case(case, run)


@given(st.text())
def test_fold_is_idempotent(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@pytest.mark.parametrize("mark", "`´‘’ʼ′＇")
def test_fold_knows_every_apostrophe(mark: str) -> None:
    assert fold(f"King{mark}s  ROW ") == "king's row"


def test_fold_keeps_homoglyphs_apart() -> None:
    assert fold("Nоde") != fold("Node")


def test_composed_and_decomposed_letters_are_one_name() -> None:
    assert fold("Cafe\u0301") == fold("Caf\u00e9")


def test_aliases_resolve_and_exact_spelling_wins() -> None:
    table = NameTable(["Depot", "DEPOT", "Mill"], {"zz-loc": 2, "old mill": 2})
    assert [table.resolve(name) for name in ("Depot", "DEPOT", "mill", "ZZ-LOC", "Old  Mill")] == [0, 1, 2, 2, 2]
    with pytest.raises(NamingError) as error:
        table.resolve("depot")
    assert error.value.code == "ambiguous_name"
    with pytest.raises(NamingError) as error:
        table.resolve("Port")
    assert error.value.code == "unknown_name"


def test_an_alias_of_no_node_is_a_programming_error() -> None:
    with pytest.raises(ValueError, match="points at node 1"):
        NameTable(["a"], {"b": 1})


@given(st.lists(names, unique_by=fold, min_size=1))
def test_declared_names_always_resolve_to_themselves(declared: list[str]) -> None:
    table = NameTable(declared)
    assert [table.resolve(name) for name in declared] == list(range(len(declared)))


def test_natural_order() -> None:
    messy = ["Node 10", "Node 2", "Node", "node 1", "2", "10", "v1a10", "v1a9"]
    assert sorted(messy, key=natural_key) == ["2", "10", "Node", "Node 2", "Node 10", "node 1", "v1a9", "v1a10"]


@given(st.lists(st.one_of(names, st.from_regex(r"[a-b0-9]{1,6}", fullmatch=True))))
def test_natural_order_is_total_and_stable(spellings: list[str]) -> None:
    backwards = spellings[::-1]
    assert sorted(spellings, key=natural_key) == sorted(backwards, key=natural_key)
    assert natural_key("7") != natural_key("07")


def test_a_very_long_number_in_a_name_is_no_error() -> None:
    assert natural_key("9" * 10_000) > natural_key("8" * 10_000)


def test_a_swap_is_applied_at_once() -> None:
    graph = NamedGraph.from_edges(["a", "b", "c"], [("a", "b", 2), ("b", "c", 3)], weighted=True)
    swapped = relabel(graph, {"a": "b", "b": "a"})
    assert swapped.edges == (("b", "a", 2), ("a", "c", 3))
    assert relabel(swapped, {"a": "b", "b": "a"}) == graph


def test_a_renaming_may_not_take_a_name_that_stays() -> None:
    graph = NamedGraph.from_edges(["a", "b"], [("a", "b")])
    with pytest.raises(NamingError) as error:
        relabel(graph, {"a": "b"})
    assert error.value.code == "not_bijective"
    with pytest.raises(NamingError) as error:
        relabel(graph, {"q": "r"})
    assert error.value.code == "unknown_name"


@pytest.mark.parametrize("value", [1.0, True, None, "", " \n", [], {}, "\ud800", 10**4000])
def test_what_is_no_node_id(value: object) -> None:
    with pytest.raises(NamingError) as error:
        node_id(value)
    assert error.value.code == "bad_id"
