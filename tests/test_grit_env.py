"""GritEnv: one episode of GRAIN on GRIT items, its budgets, its reward, and what hostile policies get."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agl.boxed import boxes
from agl.core import Answer, Malformed, Score, StopReason
from agl.dialects import dialect_for
from agl.errors import DataError, UserError
from agl.json_text import dumps, loads
from envs.grit import build, items
from envs.grit.actions import Solve
from envs.grit.answers import boxed, gold_answer
from envs.grit.build import VIEWS
from envs.grit.env import GritEnv
from envs.grit.items import TASKS, GritTask

SPLIT = build.Split("probe", 6, 9, 1, tsp_shift=0)
EACH = [build.item(SPLIT, build.Recipe(), task, 2, view) for task in TASKS for view in VIEWS]
ONE_PER_TASK = EACH[:: len(VIEWS)]


def play(task: GritTask, *actions: Solve | Answer | Malformed, **options: Any) -> Score:
    env = GritEnv(**options)
    env.reset(task)
    for action in actions:
        env.step(action)
    return env.score()


def right_call(task: GritTask) -> Solve:
    env = GritEnv()
    env.reset(task)
    call = env.oracle()
    assert isinstance(call, Solve)
    return call


def right_answer(task: GritTask) -> Answer:
    return Answer(text=boxed(gold_answer(task)))


@pytest.mark.parametrize("task", EACH, ids=lambda task: task.id)
def test_oracle_earns_everything(task: GritTask) -> None:
    for name in ("tags", "tools"):
        env = GritEnv()
        dialect = dialect_for(env, name)
        env.reset(task)
        while not env.is_over:
            for action in dialect.parse(dialect.write(env.oracle(), env.oracle_thought())):
                assert not env.step(action).observation.is_error
        score = env.score()
        assert score.total == 1.0
        assert score.reward == 2.0
        wanted = ("acc", "acc_value", "valid", "r_ans", "s_inv", "node_f1", "edge_f1", "exact", "parse", "tool_calls")
        assert all(score.parts[part] == 1.0 for part in wanted)
        assert score.parts["rounds"] == 2.0
        assert score.parts["tool_errors"] == 0.0
        assert score.labels == {"structure": "exact", "answer": "ok", "flaw": "none"}


def mutants(task: GritTask) -> dict[str, dict[str, Any]]:
    """Wrong answers of the right shape."""
    gold = gold_answer(task)
    (listed,) = [key for key, value in gold.items() if isinstance(value, list | dict)]
    numbers = [key for key, value in gold.items() if not isinstance(value, list | dict)]
    witness = gold[listed]
    found: dict[str, dict[str, Any]] = {"empty": {**gold, listed: type(witness)()}}
    if numbers:
        found["wrong value"] = {**gold, numbers[0]: gold[numbers[0]] + 1}
    if isinstance(witness, dict):
        u, v, _ = task.edges[0]
        found["extra node"] = {**gold, listed: {**witness, "Nowhere": 1}}
        found["conflict"] = {**gold, listed: {**witness, task.nodes[u]: witness[task.nodes[v]]}}
        found["missing node"] = {**gold, listed: dict(list(witness.items())[1:])}
        return found
    found["extra node"] = {**gold, listed: [*witness, "Nowhere"]}
    found["missing node"] = {**gold, listed: witness[1:]}
    others = [node for node in task.nodes if node not in witness]
    if task.task == "tsp":
        found["repeated node"] = {**gold, listed: [witness[1], *witness[1:]]}
    elif task.task == "bfs":
        found["swapped nodes"] = {**gold, listed: [witness[1], witness[0], *witness[2:]]}
    else:
        found["swapped nodes"] = {**gold, listed: [others[0], *witness[1:]]}
    return found


@pytest.mark.parametrize("task", EACH, ids=lambda task: task.id)
def test_mutants_score_nothing(task: GritTask) -> None:
    wrong = mutants(task)
    assert len(wrong) >= 4
    for name, value in wrong.items():
        # A cover of the same size that is a cover as well would be right; brute force decides.
        if task.task == "vertex_cover" and name == "swapped nodes":
            chosen = set(value["nodes"])
            if all(task.nodes[u] in chosen or task.nodes[v] in chosen for u, v, _ in task.edges):
                continue
        score = play(task, right_call(task), Answer(text=boxed(value)))
        assert score.total == 0.0, (task.id, name)
        assert score.reward == 1.0, (task.id, name)
        assert score.labels["answer"] != "ok"


def test_every_optimal_witness_is_right() -> None:
    """All permutations of a small tour: exactly those of optimal cost are accepted, in each rotation and direction."""
    task = build.item(build.Split("probe", 5, 5, 1, tsp_shift=0), build.Recipe(), "tsp", 0, ("standard", "mixed"))
    weight = {frozenset((u, v)): w for u, v, w in task.edges}
    accepted = 0
    for tour in itertools.permutations(range(5)):
        cost = sum(weight[frozenset(pair)] for pair in itertools.pairwise((*tour, tour[0])))
        named = [task.nodes[index] for index in tour]
        for shown in (named, [*named, named[0]]):
            score = play(task, Answer(text=boxed({"tour": shown, "cost": cost})))
            assert score.total == float(cost == task.gold.value)
        accepted += cost == task.gold.value
    assert accepted >= 10


def test_any_proper_colouring_with_the_fewest_colours_is_right() -> None:
    (task,) = [item for item in ONE_PER_TASK if item.task == "coloring"]
    gold = gold_answer(task)
    renamed = {node: f"colour {color}" for node, color in gold["assignment"].items()}
    assert play(task, Answer(text=boxed({**gold, "assignment": renamed}))).total == 1.0


def test_aliases_and_folded_names_are_accepted() -> None:
    for task in EACH:
        if task.scheme == "mixed":
            other = {task.nodes[index]: alias for alias, index in task.aliases.items()}

            def renamed(value: Any, other: dict[str, str] = other) -> Any:
                if isinstance(value, dict):
                    return {renamed(key): renamed(item) for key, item in value.items()}
                if isinstance(value, list):
                    return [renamed(item) for item in value]
                return other.get(value, value).upper() if isinstance(value, str) else value

            call = right_call(task)
            call = Solve(
                problem_type=call.problem_type,
                graph={**call.graph, "data": renamed(call.graph["data"])},
                parameters=call.parameters
                if task.task == "centrality"
                else {key: renamed(value) for key, value in call.parameters.items()},
            )
            gold = gold_answer(task)
            answer = {key: renamed(value) for key, value in gold.items()}
            assert play(task, call, Answer(text=boxed(answer))).reward == 2.0


def test_bare_numbers_stand_for_numbered_names() -> None:
    for task in EACH:
        if task.task == "bfs" and task.scheme == "random_id":
            order = [int(name.split()[-1]) for name in gold_answer(task)["order"]]
            assert play(task, right_call(task), Answer(text=boxed({"order": order}))).reward == 2.0


def test_bare_value_counts_for_acc_value_alone() -> None:
    for task in ONE_PER_TASK:
        if not isinstance(task.gold.value, int) or task.task == "centrality":
            continue
        score = play(task, right_call(task), Answer(text=f"\\boxed{{{task.gold.value}}}"))
        assert (score.total, score.parts["acc_value"], score.parts["valid"], score.reward) == (0.0, 1.0, 1.0, 1.0)
        wrong = play(task, right_call(task), Answer(text=f"\\boxed{{{task.gold.value + 1}}}"))
        assert (wrong.total, wrong.parts["acc_value"]) == (0.0, 0.0)
        shaped = play(task, right_call(task), Answer(text=f"\\boxed{{{task.gold.value}}}"), value_only=0.5)
        assert shaped.reward == 1.5


def test_task_specific_parts() -> None:
    parts = {task.task: play(task, right_call(task), right_answer(task)).parts for task in ONE_PER_TASK}
    assert parts["tsp"]["gap"] == 0.0
    assert parts["bfs"]["acc_valid"] == 1.0
    assert parts["centrality"]["contains_one"] == 1.0
    assert "gap" not in parts["bfs"]


def test_another_correct_bfs_order_is_valid_but_not_right() -> None:
    for seed in range(20):
        task = build.item(SPLIT, build.Recipe(seed=seed), "bfs", 0, ("standard", "canonical"))
        gold = gold_answer(task)["order"]
        for i in range(1, task.n - 1):
            order = [*gold[:i], gold[i + 1], gold[i], *gold[i + 2 :]]
            parts = play(task, Answer(text=boxed({"order": order}))).parts
            if parts["acc_valid"]:
                assert parts["acc"] == 0.0
                return
    raise AssertionError("no graph with two neighbours that can be swapped")


def without_one_edge(call: Solve) -> Solve:
    data = {node: dict(near) for node, near in call.graph["data"].items()}
    node = next(node for node, near in data.items() if near)
    data[node].popitem()
    return Solve(problem_type=call.problem_type, graph={**call.graph, "data": data}, parameters=call.parameters)


@pytest.mark.parametrize("task", ONE_PER_TASK, ids=lambda task: task.task)
def test_reward_ladder(task: GritTask) -> None:
    call, wrong = right_call(task), Answer(text=boxed(mutants(task)["extra node"]))
    best = play(task, call, right_answer(task)).reward
    partly = play(task, call, wrong).reward
    neither = play(task, without_one_edge(call), call, without_one_edge(call), wrong).reward
    if task.task in ("tsp", "centrality", "shortest_path", "bfs"):
        # Dropping an edge may leave no answer to these; the last call that succeeded counts.
        assert neither <= partly
    else:
        assert neither == pytest.approx((task.m - 1) / task.m)
    invalid = play(task, call, Answer(text="It is 7.")).reward
    assert best > partly > 0.0 > invalid == -1.0


def test_dropping_edges_lowers_the_reward_by_the_jaccard_index() -> None:
    (task,) = [item for item in ONE_PER_TASK if item.task == "vertex_cover"]
    score = play(task, without_one_edge(right_call(task)), right_answer(task))
    assert score.parts["s_inv"] == pytest.approx((task.m - 1) / task.m)
    assert score.reward == pytest.approx(1 + (task.m - 1) / task.m)
    assert score.labels["structure"] == "missing_edges"
    assert score.total == 1.0


@pytest.mark.parametrize(("counted", "wanted"), [("last", False), ("first", True), ("best", True)])
def test_which_call_counts(counted: Any, wanted: bool) -> None:
    (task,) = [item for item in ONE_PER_TASK if item.task == "coloring"]
    score = play(task, right_call(task), without_one_edge(right_call(task)), right_answer(task), counted=counted)
    assert (score.reward == 2.0) is wanted


BROKEN = Solve(problem_type="tsp", graph={"data": {}}, parameters={})
NOT_JSON = Malformed(reason="not_json", message="the JSON in <graph> cannot be read")

VALIDITY: list[tuple[str, Callable[[GritTask], list[Any]], str]] = [
    ("plain", lambda task: [right_call(task), right_answer(task)], "none"),
    ("an error that is repaired", lambda task: [BROKEN, right_call(task), right_answer(task)], "none"),
    ("a malformed call that is repaired", lambda task: [NOT_JSON, right_call(task), right_answer(task)], "none"),
    ("no call", lambda task: [right_answer(task)], "no_call"),
    ("no call that succeeds", lambda task: [BROKEN, right_answer(task)], "no_call"),
    ("no answer", lambda task: [right_call(task)], "no_answer"),
    ("no box", lambda task: [right_call(task), Answer(text=dumps(gold_answer(task)))], "no_box"),
    (
        "two boxes",
        lambda task: [right_call(task), Answer(text=right_answer(task).text * 2)],
        "several_boxes",
    ),
    ("an open box", lambda task: [right_call(task), Answer(text="\\boxed{")], "no_box"),
    ("a box of prose", lambda task: [right_call(task), Answer(text="\\boxed{seven}")], "unreadable_box"),
    ("a box of another shape", lambda task: [right_call(task), Answer(text='\\boxed{{"x": 1}}')], "unreadable_box"),
    *(
        (
            f"sticky {reason}",
            lambda task, reason=reason: [
                right_call(task),
                Malformed(reason=reason, message="broken"),
                right_answer(task),
            ],
            "format",
        )
        for reason in ("unopened_tag", "wrote_result", "unfinished_think", "truncated", "missing_close")
    ),
]


@pytest.mark.parametrize(("actions", "flaw"), [case[1:] for case in VALIDITY], ids=[case[0] for case in VALIDITY])
def test_validity(actions: Callable[[GritTask], list[Any]], flaw: str) -> None:
    for task in ONE_PER_TASK:
        score = play(task, *actions(task))
        assert score.labels["flaw"] == flaw
        assert score.parts["valid"] == float(flaw == "none")
        assert score.reward == (2.0 if flaw == "none" else -1.0)


def test_content_that_starts_with_a_quote_is_wrapped_once() -> None:
    (task,) = [item for item in ONE_PER_TASK if item.task == "shortest_path"]
    inner = dumps(gold_answer(task))[1:-1]
    assert play(task, right_call(task), Answer(text=f"\\boxed{{{inner}}}")).reward == 2.0


def test_nothing_done_earns_the_error_reward() -> None:
    for options, reward in (({}, -1.0), ({"rho_err": -0.25}, -0.25)):
        score = play(ONE_PER_TASK[0], **options)
        assert (score.total, score.reward) == (0.0, reward)


def test_budget_of_calls() -> None:
    task = ONE_PER_TASK[0]
    env = GritEnv(max_rounds=2)
    assert "at most 2 calls" in env.instructions()
    env.reset(task)
    first = env.step(right_call(task))
    assert "last call" not in first.observation.text
    last = env.step(BROKEN)
    assert last.observation.is_error
    assert "last call" in last.observation.text
    assert not last.truncated
    over = env.step(right_call(task))
    assert over.truncated
    assert over.stop is StopReason.MAX_TURNS
    assert env.score().reward == -1.0
    env.reset(task)
    env.step(right_call(task))
    env.step(BROKEN)
    assert env.step(right_answer(task)).stop is StopReason.ANSWER
    assert env.score().reward == 2.0


def test_second_malformed_call_in_a_row_ends() -> None:
    task = ONE_PER_TASK[0]
    env = GritEnv()
    env.reset(task)
    assert not env.step(NOT_JSON).terminated
    assert not env.step(BROKEN).terminated
    assert not env.step(NOT_JSON).terminated
    over = env.step(NOT_JSON)
    assert over.terminated
    assert over.stop is StopReason.INVALID


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"graph": {}}, "missing_field"),
        ({"graph": {"data": {}, "directed": False, "weighted": False}}, "empty_graph"),
        ({"graph": {"data": {"a": {"b": "7 km"}}, "directed": False, "weighted": True}}, "bad_weight"),
        ({"graph": {"data": {"a": {"a": 1}}, "directed": False, "weighted": True}}, "self_loop"),
        (
            {"graph": {"data": {"a": {"b": 7}, "b": {"a": 5}}, "directed": False, "weighted": True}},
            "contradictory weight for (a,b): 7 and 5",
        ),
        ({"problem_type": "sudoku"}, "unknown_problem"),
        ({"parameters": {}}, "missing_parameter"),
        ({"parameters": {"start": "Nowhere", "end": "Nowhere"}}, "unknown_node"),
    ],
)
def test_errors_are_short_observations(change: dict[str, Any], said: str) -> None:
    (task,) = [item for item in ONE_PER_TASK if item.task == "shortest_path"]
    call = right_call(task).model_copy(update=change)
    env = GritEnv()
    env.reset(task)
    step = env.step(call)
    assert step.observation.is_error
    assert said in step.observation.text
    assert len(step.observation.text) < 600
    assert not step.terminated
    assert env.score().parts["tool_errors"] == 1.0


def test_the_worked_example_of_the_paper() -> None:
    """Undirected edges listed once, nodes that occur only as neighbours: the target is reachable."""
    data = {"A": {"B": 3, "C": 9}, "B": {"D": 4}, "C": {"D": 1}, "D": {"E": 9}}
    graph = {"type": "adjacency_list", "data": data, "directed": False, "weighted": True}
    env = GritEnv()
    env.reset(ONE_PER_TASK[0])
    call = Solve(
        problem_type="shortest_path", graph=graph, parameters={"start": "E", "end": "A", "algorithm": "dijkstra"}
    )
    assert env.step(call).observation.text == "dijkstra: path E -> D -> B -> A; cost 16"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.sampled_from(ONE_PER_TASK), st.sampled_from(TASKS), st.dictionaries(st.text(max_size=9), json_values), st.data()
)
@settings(max_examples=150, deadline=None)
def test_hostile_graphs_earn_nothing(task: GritTask, problem: str, graph: dict[str, Any], data: st.DataObject) -> None:
    if data.draw(st.booleans()):
        graph = {"data": data.draw(json_values), "directed": data.draw(json_values), "weighted": data.draw(json_values)}
    parameters = data.draw(st.dictionaries(st.sampled_from(("start", "end", "order", "measure", "x")), json_values))
    env = GritEnv()
    env.reset(task)
    step = env.step(Solve(problem_type=problem, graph=graph, parameters=parameters))
    assert len(step.observation.text) < 10_000
    assert env.score().total == 0.0
    assert env.score().reward == -1.0
    assert env.score().parts["s_inv"] == 0.0


@given(st.sampled_from(ONE_PER_TASK), json_values, st.text(max_size=30))
@settings(max_examples=150, deadline=None)
def test_hostile_answers_earn_nothing(task: GritTask, value: Any, text: str) -> None:
    keys = list(gold_answer(task))
    bodies = [text, repr(value), f"\\boxed{{{value}}}", f"\\boxed{{{text}}}"]
    bodies += [f"\\boxed{{{{{', '.join(f'{dumps(key)}: {json_or_null(value)}' for key in keys)}}}}}"]
    for body in bodies:
        score = play(task, Answer(text=body))
        assert score.total == 0.0
        assert score.reward == -1.0


def json_or_null(value: Any) -> str:
    try:
        return dumps(value)
    except ValueError:
        return "null"


@pytest.mark.parametrize("body", ["<graph>", "{", "\\boxed{" * 50, "\\boxed{{" + '"a":' * 300, "[" * 5000, "9" * 5000])
def test_hostile_boxes_are_data(body: str) -> None:
    for task in ONE_PER_TASK:
        for text in (body, f"\\boxed{{{body}}}", f"\\boxed{{{body}"):
            assert play(task, right_call(task), Answer(text=text)).total == 0.0


def test_random_actions_are_legal() -> None:
    rng = random.Random(0)
    for task in EACH:
        env = GritEnv()
        env.reset(task)
        while not env.is_over:
            step = env.step(env.random_action(rng))
            assert not step.observation.is_error or task.task in ("tsp",)
        assert env.score().parts["valid"] == float(env.score().parts["parse"] == 1.0)


def test_tasks_from_files_and_splits(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    items.write(EACH[:5], path)
    assert list(GritEnv.tasks(str(path))) == EACH[:5]
    assert list(GritEnv.tasks(str(path), limit=2)) == EACH[:2]
    assert len(GritEnv.tasks("test")) == 2760
    assert GritEnv.tasks(None, seed=1, limit=12)[11] == GritEnv.tasks("mini", seed=1)[11]
    with pytest.raises(DataError, match="expected a GRIT split"):
        GritEnv.tasks("nowhere")
    path.write_text("{}\n")
    with pytest.raises(DataError, match="line 1"):
        GritEnv.tasks(str(path))


def test_facets_and_clusters() -> None:
    task = EACH[0]
    assert GritEnv.facets(task) == {"task": task.task, "form": task.form, "scheme": task.scheme}
    assert len({GritEnv.cluster(item) for item in EACH}) == len(TASKS)


def test_worked_examples_are_small_and_foreign() -> None:
    for task in ONE_PER_TASK:
        shown = GritEnv.worked_examples(task, 2)
        assert len({example.id for example in shown}) == 2
        assert all(example.task == task.task and example.n == 4 for example in shown)
        assert all(example.graph_id != task.graph_id for example in shown)
        env = GritEnv()
        text = dialect_for(env).demonstrate(env, env.reset(shown[0]))[-1].content
        assert env.score().reward == 2.0
        assert len(boxes(text)) == 1


def test_thoughts_do_not_give_the_answer_away() -> None:
    for task in EACH:
        env = GritEnv()
        env.reset(task)
        thought = env.oracle_thought()
        assert thought
        assert not any(name in thought for name in task.nodes)


def test_demonstrated_answer_is_what_the_tool_said() -> None:
    """A trace that answers with another optimum than the one shown would teach to ignore the tool."""
    for task in EACH:
        env = GritEnv()
        env.reset(task)
        call = env.oracle()
        assert isinstance(call, Solve)
        shuffled = dict(sorted(call.graph["data"].items(), reverse=True))
        said = env.step(call.model_copy(update={"graph": {**call.graph, "data": shuffled}})).observation.text
        answer = env.oracle()
        assert isinstance(answer, Answer)
        value = loads(boxes(answer.text)[0])
        if task.task in ("shortest_path", "tsp", "bfs"):
            witness = value.get("path") or value.get("tour") or value.get("order")
            assert " -> ".join(witness) in said
        env.step(answer)
        assert env.score().reward == 2.0


def test_prompt_fits_small_models() -> None:
    env = GritEnv()
    prompt = f"{env.instructions()}\n{dialect_for(env).protocol()}"
    assert len(prompt) / 4 < 700
    assert all(f"- {task}:" in prompt for task in TASKS)


def test_bad_options_are_refused() -> None:
    with pytest.raises(UserError, match="max_rounds"):
        GritEnv(max_rounds=0)
