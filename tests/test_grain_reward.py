"""GRAIN's reward rules, each as a worked example: what counts as valid, which graph counts, what it earns."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.graphs.named import GraphError, NamedGraph, read_graph
from agl.graphs.naming import NameTable
from agl.messages import Prompt
from agl.policies.policy import Dialogue, Play, Policy
from agl.policies.scripted import Line, ScriptedDialogue
from agl.rollout import rollout
from envs.grit.env import GritEnv
from rewards.compose import Counted, GatedReward, counted_graph
from rewards.protocol import UNFORGIVABLE, Flaw, flaw
from rewards.structure import FAILED, compare

SQUARE = NamedGraph(
    ("Depot A", "O'Hara Quay", "C", "D", "E"),
    (("Depot A", "O'Hara Quay", 7), ("O'Hara Quay", "C", 5), ("C", "D", 2), ("Depot A", "D", 1)),
    weighted=True,
)
NAMES = NameTable(SQUARE.nodes, {"Hub": 0, "0x1F": 2})
PLAIN = NamedGraph(("a", "b", "c"), (("a", "b", 1), ("b", "c", 1)))


def graph(data: dict[str, Any], *, directed: bool = False, weighted: bool = True) -> NamedGraph:
    return read_graph({"data": data, "directed": directed, "weighted": weighted})


FULL: dict[str, Any] = {"Depot A": {"O'Hara Quay": 7, "D": 1}, "O'Hara Quay": {"C": 5}, "C": {"D": 2}, "E": {}}


@pytest.mark.parametrize(
    ("data", "options", "s_inv", "node_f1", "error"),
    [
        pytest.param(FULL, {}, 1.0, 1.0, "exact", id="the true graph"),
        pytest.param({**FULL, "D": {"C": 2, "Depot A": 1}}, {}, 1.0, 1.0, "exact", id="edges listed twice collapse"),
        pytest.param(
            {"depot  a": {"O\u2019HARA QUAY": 7, "d": 1}, "o'hara quay": {"c": 5}, "C": {"D": 2}, "e": {}},
            {},
            1.0,
            1.0,
            "exact",
            id="names are folded",
        ),
        pytest.param(
            {"Hub": {"O'Hara Quay": 7, "D": 1}, "O'Hara Quay": {"0x1F": 5}, "0x1F": {"D": 2}, "E": {}},
            {},
            1.0,
            1.0,
            "exact",
            id="aliases count as names",
        ),
        pytest.param(
            {"Hub": {"O'Hara Quay": 7}, "Depot A": {"D": 1}, "C": {"O'Hara Quay": 5}, "0x1F": {"D": 2}, "E": {}},
            {},
            1.0,
            1.0,
            "exact",
            id="two names of one node are merged with their edges",
        ),
        pytest.param(
            {**FULL, "Depot A": {"O'Hara Quay": 7.0, "D": 1}}, {}, 1.0, 1.0, "exact", id="7 and 7.0 are equal"
        ),
        pytest.param(
            {"Depot A": {"O'Hara Quay": 7, "D": 1}, "O'Hara Quay": {"C": 5}, "C": {"D": 2}},
            {},
            1.0,
            8 / 9,
            "node_set",
            id="isolated nodes count in node F1 only",
        ),
        pytest.param({**FULL, "C": {}, "D": {}}, {}, 3 / 4, 1.0, "missing_edges", id="a missing edge"),
        pytest.param({**FULL, "E": {"C": 1}}, {}, 4 / 5, 1.0, "extra_edges", id="an extra edge"),
        pytest.param({**FULL, "C": {"D": 3}}, {}, 3 / 5, 1.0, "weight", id="a wrong weight costs two tuples"),
        pytest.param({**FULL, "C": {}, "D": {}, "E": {"C": 1}}, {}, 3 / 5, 1.0, "mixed", id="missing and extra edges"),
        pytest.param(
            {**FULL, "C": {"Dee": 2}, "D": {}},
            {},
            3 / 5,
            10 / 11,
            "node_set",
            id="an unknown name is an extra node",
        ),
        pytest.param(FULL, {"directed": True}, 4 / 8, 1.0, "missing_edges", id="one arc per edge earns half"),
    ],
)
def test_structure_part(
    data: dict[str, Any], options: dict[str, bool], s_inv: float, node_f1: float, error: str
) -> None:
    found = compare(graph(data, **options), SQUARE, NAMES)
    assert found.jaccard == pytest.approx(s_inv)
    assert found.node_f1 == pytest.approx(node_f1)
    assert found.error_class == error
    assert found.exact is (error == "exact")


def test_invented_weights_of_an_unweighted_graph_are_wrong() -> None:
    assert compare(graph({"a": {"b": 1}, "b": {"c": 1}}), PLAIN).jaccard == 1.0
    assert compare(graph({"a": {"b": 4}, "b": {"c": 1}}), PLAIN).jaccard == pytest.approx(1 / 3)


def test_empty_edge_sets() -> None:
    lone = NamedGraph(("a", "b"), ())
    assert compare(lone, lone).jaccard == 1.0
    assert compare(lone, PLAIN, NameTable(PLAIN.nodes)).jaccard == 0.0
    assert compare(PLAIN, NamedGraph(PLAIN.nodes, ())).jaccard == 0.0


def test_no_isomorphism_is_accepted() -> None:
    path = NamedGraph(("a", "b", "c"), (("a", "b", 1), ("b", "c", 2)), weighted=True)
    swapped = NamedGraph(("a", "b", "c"), (("a", "b", 2), ("b", "c", 1)), weighted=True)
    assert compare(swapped, path).jaccard == 0.0
    nodes = tuple("abcdef")
    ring = NamedGraph(nodes, tuple((nodes[i], nodes[(i + 1) % 6], 1) for i in range(6)))
    triangles = NamedGraph(nodes, tuple((nodes[i], nodes[i // 3 * 3 + (i + 1) % 3], 1) for i in range(6)))
    assert not compare(triangles, ring).exact


def test_contradictory_weights_of_raw_logs_contribute_both_tuples() -> None:
    with pytest.raises(GraphError, match="contradictory weight"):
        graph({"a": {"b": 7}, "b": {"a": 5}})
    logged = NamedGraph(("a", "b"), (("a", "b", 7), ("b", "a", 5)), weighted=True)
    assert compare(logged, NamedGraph(("a", "b"), (("a", "b", 7),), weighted=True)).jaccard == 0.5


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        ({}, None),
        ({"malformed": ["not_json", "no_action", "unknown_argument"]}, None),
        *(({"malformed": [reason]}, Flaw.FORMAT) for reason in sorted(UNFORGIVABLE)),
        ({"calls_succeeded": 0}, Flaw.NO_CALL),
        ({"calls_succeeded": 0, "needs_call": False}, None),
        ({"calls_succeeded": 5}, None),
        ({"boxes": None}, Flaw.NO_ANSWER),
        ({"boxes": 0}, Flaw.NO_BOX),
        ({"boxes": 2}, Flaw.SEVERAL_BOXES),
        ({"readable": False}, Flaw.UNREADABLE_BOX),
        ({"readable": False, "boxes": None, "calls_succeeded": 0, "malformed": ["truncated"]}, Flaw.FORMAT),
    ],
)
def test_what_makes_a_trajectory_invalid(facts: dict[str, Any], wanted: Flaw | None) -> None:
    usual: dict[str, Any] = {"malformed": [], "calls_succeeded": 1, "boxes": 1, "readable": True}
    assert flaw(**{**usual, **facts}) is wanted


@pytest.mark.parametrize(
    ("options", "valid", "right", "value_right", "s_inv", "wanted"),
    [
        ({}, True, True, True, 1.0, 2.0),
        ({}, True, True, True, 0.25, 1.25),
        ({}, True, False, True, 1.0, 1.0),
        ({}, True, False, False, 0.0, 0.0),
        ({}, False, True, True, 1.0, -1.0),
        ({"rho_err": -0.5}, False, True, True, 1.0, -0.5),
        ({"lambda_inv": 0.0}, True, True, True, 1.0, 1.0),
        ({"lambda_inv": 0.5}, True, True, True, 1.0, 1.5),
        ({"value_only": 0.5}, True, False, True, 1.0, 1.5),
        ({"value_only": 0.5}, True, False, False, 1.0, 1.0),
        ({"value_only": 0.5}, True, True, True, 1.0, 2.0),
    ],
)
def test_equation_3(
    options: dict[str, float], valid: bool, right: bool, value_right: bool, s_inv: float, wanted: float
) -> None:
    rule = GatedReward(**options)  # type: ignore[arg-type]
    assert rule.total(valid=valid, r_ans=rule.answer_part(right, value_right), s_inv=s_inv) == pytest.approx(wanted)


@pytest.mark.parametrize(("counted", "wanted"), [("last", 0.5), ("first", 0.0), ("best", 1.0)])
def test_which_graph_counts(counted: Counted, wanted: float) -> None:
    none = compare(NamedGraph(("a", "b", "c"), ()), PLAIN)
    half = compare(NamedGraph(("a", "b", "c"), (("a", "b", 1),)), PLAIN)
    assert counted_graph([none, compare(PLAIN, PLAIN), half], counted).jaccard == wanted
    assert counted_graph([], counted) is FAILED


@given(st.booleans(), st.booleans(), st.booleans(), st.floats(0, 1))
def test_invalid_never_earns_as_much_as_valid(valid: bool, right: bool, value_right: bool, s_inv: float) -> None:
    rule = GatedReward(value_only=0.5)
    total = rule.total(valid=valid, r_ans=rule.answer_part(right, value_right), s_inv=s_inv)
    assert -1.0 <= total <= 2.0
    assert (total >= 0.0) is valid


@pytest.mark.parametrize(
    ("lead", "seen", "valid"),
    [
        ("<think>hm</think>", True, 1.0),
        ("hm</think>", True, 0.0),
        ("hm</think>", False, 1.0),
    ],
)
async def test_a_think_block_is_opened_by_the_policy_or_a_prompt_that_nobody_saw(
    lead: str, seen: bool, valid: float
) -> None:
    class Thinker(Policy):
        """The oracle with its think block written as `lead`."""

        name = "thinker"

        def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
            def line() -> Line:
                return lead + play.dialect.write(play.env.oracle()), "stop"

            return ScriptedDialogue(line, may_begin_inside_thinking=not seen)

    episode = await rollout(GritEnv(), GritEnv.tasks(limit=1)[0], Thinker())
    assert episode.score is not None
    assert episode.score.parts["valid"] == valid
    assert episode.score.reward == (2.0 if valid else -1.0)
