"""ReaganEnv: turns and layers, what counts as a mistake, the fallback, the switches, and graphs at the edge."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agl.config import checked_options
from agl.conformance import CHECKS
from agl.core import Malformed, StopReason
from agl.dialects import dialect_for
from agl.errors import UserError
from agl.graphs.sources import open_graph
from agl.policies.scripted import Player
from envs.reagan.actions import GlobalAggregation, LocalAggregation, NoOp, Predict
from envs.reagan.env import ReaganEnv
from envs.reagan.faults import FAULTS
from envs.reagan.tasks import ReaganTask
from tests.reagan_graphs import blocks, parts, plan, play, prompts
from tests.text_graphs import node, write

UPDATE = {"act": "update", "predicted_label": "Label_0"}
NOTHING = {"act": "no_op"}


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(blocks(tmp_path_factory.mktemp("graphs") / "g"))


@pytest.fixture(scope="module")
def tasks(data: str, cache: None) -> list[ReaganTask]:
    return list(ReaganEnv.tasks(data))


@pytest.fixture
def task(tasks: list[ReaganTask]) -> ReaganTask:
    """A node with several labelled neighbours and several others."""
    return max((task for task in tasks if task.node != "1"), key=lambda task: task.labelled_neighbours)


def turn(env: ReaganEnv, text: str) -> str:
    """Play one turn written under json_plan; returns what opens the next."""
    for action in dialect_for(env, "json_plan").parse(text):
        if env.is_over:
            break
        env.step(action)
    step = env.close_turn()
    return "" if step is None else step.observation.text


def names_of(env: ReaganEnv, *, labelled: bool) -> list[str]:
    """Neighbours with or without a known label, as the prompt lists them."""
    title = "With a known label" if labelled else "Without"
    line = next(line for line in env.prompt().text.splitlines() if line.startswith(title))
    found: list[str] = json.loads(line[line.index("[") :])
    return found


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("options", [{"planning": False}, {"layers": 1, "sources": "global"}], ids=["fixed", "global"])
def test_contract_under_other_options(check: Any, options: dict[str, Any]) -> None:
    class Optioned(ReaganEnv):
        def __init__(self) -> None:
            super().__init__(**options)

    if check.__name__ == "actions_describe_themselves":
        Optioned.actions = Optioned().legal_actions()
    check(Optioned)


# The plan: read whole, in order, and nothing behind its back.


def test_every_action_of_a_plan_is_executed_in_order(task: ReaganTask) -> None:
    env = ReaganEnv()
    env.reset(task)
    known, others = names_of(env, labelled=True)[:2], names_of(env, labelled=False)[:1]
    turn(
        env,
        plan(
            {"act": "retrieve", "target_nodes": known, "info_type": "both"},
            {"act": "rag_query", "query": task.node, "top_k": 3},
            {"act": "retrieve", "target_nodes": others, "info_type": "text"},
            UPDATE,
        ),
    )
    assert [entry.source for entry in env.memory[1:3]] == known
    assert [entry.source_type for entry in env.memory] == [
        "self",
        "local",
        "local",
        "global",
        "global",
        "global",
        "local",
    ]
    assert env.memory[-1].label is None
    assert "Your provisional label: Label_0" in env.prompt().text


def test_one_retrieve_adds_exactly_its_entries(task: ReaganTask, data: str) -> None:
    env, graph = ReaganEnv(), open_graph(data)
    env.reset(task)
    known = names_of(env, labelled=True)
    turn(env, plan({"act": "retrieve", "target_nodes": known[:1], "info_type": "both"}))
    (own, entry) = env.memory
    row = graph.index_of(known[0])
    assert (own.source, own.source_type, own.label) == (task.node, "self", None)
    assert (entry.source, entry.label, entry.label_status) == (known[0], graph.labels[row], "gold")
    assert entry.text == graph.text(row)


@pytest.mark.parametrize(
    ("info", "has_text", "has_label"), [("text", True, False), ("label", False, True), ("all", True, True)]
)
def test_a_retrieve_reads_what_it_asks_for(task: ReaganTask, info: str, has_text: bool, has_label: bool) -> None:
    env = ReaganEnv()
    env.reset(task)
    known = names_of(env, labelled=True)[:1]
    turn(env, plan({"act": "retrieve", "target_nodes": known, "info_type": info}))
    assert [(bool(entry.text), entry.label is not None) for entry in env.memory[1:]] == [(has_text, has_label)]


def test_a_policy_that_does_nothing_knows_its_own_text_only(task: ReaganTask) -> None:
    env = ReaganEnv()
    env.reset(task)
    for _ in range(2):
        turn(env, plan(NOTHING))
    assert [entry.source_type for entry in env.memory] == ["self"]
    assert "=>" not in env.prompt().text


def test_the_prediction_comes_after_the_last_layer(task: ReaganTask) -> None:
    for layers in (1, 2, 4):
        episode = play(ReaganEnv(layers=layers), task, [plan(NOTHING)] * layers + ['{"predicted_label": "Label_1"}'])
        assert [text.splitlines()[0][:7] for text in prompts(episode)] == [
            *(f"Layer {layer}" for layer in range(1, layers + 1)),
            "Last st",
        ]
        assert episode.outcome.stop is StopReason.ANSWER
        assert episode.score is not None
        assert episode.score.labels["predicted"] == "class 1"


def test_the_final_prompt_decides_and_not_the_provisional_label(task: ReaganTask) -> None:
    episode = play(ReaganEnv(layers=1), task, [plan(UPDATE), plan({"act": "update", "predicted_label": 2})])
    assert episode.score is not None
    assert episode.score.labels["predicted"] == "class 2"
    assert parts(episode)["layer1_update"] == 1


def test_class_0_is_a_class_like_any_other(tasks: list[ReaganTask]) -> None:
    zero = next(task for task in tasks if task.gold == 0)
    for said in ("Label_0", 0, "0", "class 0"):
        episode = play(ReaganEnv(layers=1), zero, [plan(NOTHING), plan({"act": "update", "predicted_label": said})])
        assert episode.score is not None
        assert episode.score.total == 1.0
        assert episode.score.labels["predicted"] == "class 0"
    env = ReaganEnv()
    env.reset(max(tasks, key=lambda task: task.labelled_neighbours))
    turn(env, plan({"act": "retrieve", "target_nodes": names_of(env, labelled=True)}))
    assert any(entry.label == 0 for entry in env.memory)
    assert "=> Label_0" in env.prompt().text


# Mistakes.


def fault(env: ReaganEnv, text: str) -> dict[str, float]:
    """What one turn adds to the counters of mistakes."""
    before = env.score().parts
    turn(env, text)
    after = env.score().parts
    return {kind: after[kind] - before[kind] for kind in FAULTS if after[kind] != before[kind]}  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "unreadable"),
        ("I would look at my neighbours.", "unreadable"),
        ('[{"action_type": "no_op"', "unreadable"),
        ("[]", "empty_plan"),
        ('{"actions": []}', "empty_plan"),
        ('[{"action_type": "fly"}]', "unknown_action"),
        ('[{"action_type": null}]', "unknown_action"),
        ('[{"action_type": "retrieve"}]', "bad_item"),
        ('[{"action_type": "retrieve", "target_nodes": 5}]', "bad_item"),
        ('[{"action_type": "retrieve", "target_nodes": [], "info_type": "x"}]', "bad_item"),
        ('[{"action_type": "retrieve", "target_nodes": []}]', "bad_target"),
        ('[{"action_type": "retrieve", "target_nodes": ["nobody", 3.5, null, {"id": 4}]}]', "bad_target"),
        ('[{"action_type": "broadcast", "target_nodes": ["nobody"], "message": "x"}]', "bad_target"),
        ('[{"action_type": "broadcast", "target_nodes": [], "message": ""}]', "bad_item"),
        ('[{"action_type": "rag_query", "top_k": 99}]', "clamped"),
        ('[{"action_type": "rag_query", "top_k": 0}]', "clamped"),
        ('[{"action_type": "rag_query", "top_k": "many"}]', "clamped"),
        ('[{"action_type": "rag_query", "top_k": 2.5}]', "clamped"),
        ('[{"action_type": "rag_query", "top_k": 1e300}]', "clamped"),
        ('[{"action_type": "rag_query", "top_k": [1]}]', "bad_item"),
        ('[{"action_type": "update", "predicted_label": "Label_9"}]', "bad_label"),
        ('[{"action_type": "update", "predicted_label": null}]', "bad_item"),
        ("[" + '{"action_type": "no_op"},' * 4 + '{"action_type": "no_op"}]', "over_limit"),
        ('[{"action_type": "no_op"}, {"action_ty', "unreadable"),
    ],
)
def test_each_mistake_has_its_counter(task: ReaganTask, text: str, kind: str) -> None:
    env = ReaganEnv()
    env.reset(task)
    assert fault(env, text) == {kind: 1.0}
    assert env.score().parts["faulty"] == 1.0


def test_wrong_targets_are_filtered_and_the_right_ones_read(task: ReaganTask) -> None:
    env = ReaganEnv()
    env.reset(task)
    known = names_of(env, labelled=True)[0]
    targets = ["nobody", int(known), task.node]
    assert fault(env, plan({"act": "retrieve", "target_nodes": targets})) == {"bad_target": 1.0}
    assert [entry.source for entry in env.memory] == [task.node, known]


def test_too_many_results_are_cut_to_ten(task: ReaganTask) -> None:
    env = ReaganEnv()
    env.reset(task)
    turn(env, plan({"act": "rag_query", "top_k": 500}))
    assert sum(entry.source_type == "global" for entry in env.memory) == 10


def test_the_label_of_a_training_node_cannot_be_set(task: ReaganTask, data: str) -> None:
    graph = open_graph(data)
    row = int(graph.nodes_in("train")[0])
    known = task.model_copy(update={"node": graph.ids[row], "gold": int(graph.labels[row])})
    env = ReaganEnv()
    env.reset(known)
    assert fault(env, plan(UPDATE)) == {"train_update": 1.0}
    assert "provisional" not in env.prompt().text


@pytest.mark.parametrize("dialect", ["json_plan", "tools", "tags"])
@pytest.mark.parametrize("planning", [True, False])
def test_worked_examples_make_no_mistake(task: ReaganTask, dialect: str, planning: bool) -> None:
    env = ReaganEnv(planning=planning)
    _, prompt = dialect_for(env, dialect).open(env, task, 2)
    assert len(prompt.messages) > 5
    assert not [message.content for message in prompt.messages if "Error" in message.content]
    shown = [message.content for message in prompt.messages if "Your node: " in message.content]
    nodes = dict.fromkeys(text.split("Your node: ", 1)[1].splitlines()[0] for text in shown)
    assert len(nodes) == 3, "two training nodes, then the node that is asked for"
    assert list(nodes)[-1] == json.dumps(task.node)


def test_actions_that_are_switched_off_are_unknown(task: ReaganTask) -> None:
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"sources": "global"}, {"act": "retrieve", "target_nodes": []}),
        ({"sources": "local"}, {"act": "rag_query"}),
        ({"broadcast": False}, {"act": "broadcast", "target_nodes": [], "message": "x"}),
    ]
    for options, action in cases:
        env = ReaganEnv(**options)
        first = dialect_for(env).prompt(env, env.reset(task))
        assert f'"{action["act"]}"' not in str(first)
        assert fault(env, plan(action)) == {"unknown_action": 1.0}


def corrupted(draw: random.Random, neighbours: list[str]) -> str:
    """One output with exactly one fault, whichever the phase."""
    whole = plan({"act": "broadcast", "target_nodes": neighbours, "message": "a [b] {c} \\ é 🦊"})
    prose = "".join(draw.choices("abc def, ghi. <>!?\n🦊é\u202e", k=draw.randrange(80)))
    return draw.choice(
        [
            "",
            prose,
            whole[: draw.randrange(1, len(whole) - 1)],
            "[" * draw.randrange(1, 5000),
            plan({"act": draw.choice(["Retrieve!!", "", "fly", "predict_all"])}),
            plan({"act": draw.choice([None, 3, ["update"], {"update": 1}])}),
            plan({"act": "retrieve", "target_nodes": draw.choice([None, 7, "all", {"a": 1}])}),
            plan({"act": "update", "predicted_label": draw.choice([None, 1.5, ["Label_0"], {"label": 0}, True])}),
            plan({"act": "update", "predicted_label": draw.choice(["", "Label_99", "Label_0 or Label_1", -1, 10**30])}),
            "[[], []]",
            "[]",
            '{"actions": []}',
            '{"action_type": "retrieve", "target_nodes": ["nobody"]}',
            "NaN",
            '[{"action_type": "rag_query", "top_k": NaN}]',
            "\x00\ud800",
            "<think>" + prose,
        ]
    )


def test_a_thousand_corrupted_outputs(tasks: list[ReaganTask], data: str) -> None:
    draw, names = random.Random(0), set(open_graph(data).class_names)
    left = 1000
    faults = faulty = 0.0
    while left:
        env = ReaganEnv(layers=draw.randint(1, 4))
        env.reset(draw.choice(tasks))
        while left and not env.is_over:
            turn(env, corrupted(draw, sorted(env.place.neighbours)))
            left -= 1
        score = env.score()
        assert score.labels["predicted"] in names
        assert score.total == 0.0
        assert score.parts["decided"] == 0.0
        faults += sum(score.parts[kind] or 0.0 for kind in FAULTS)
        faulty += score.parts["faulty"] or 0.0
    assert faults == faulty == 1000


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=60) | st.from_regex(r"\[?\{\"(action_type|predicted_label)\": .{0,20}\}\]?"))
def test_any_text_is_answered(tasks: list[ReaganTask], text: str) -> None:
    env = ReaganEnv(layers=1)
    env.reset(tasks[0])
    for _ in range(4):
        turn(env, text)
    assert env.is_over
    assert env.score().labels["predicted"]


# Retry and fallback.


def test_an_unreadable_plan_is_asked_for_once_more_in_fewer_words(task: ReaganTask) -> None:
    full = prompts(play(ReaganEnv(), task, [plan(NOTHING)]))
    episode = play(ReaganEnv(), task, ["nonsense", plan(NOTHING), "nonsense", "nonsense", plan(UPDATE)])
    shown = prompts(episode)
    assert [text.splitlines()[0].split(":")[0] for text in shown] == [
        "Layer 1 of 2",
        "Layer 1 of 2",
        "Layer 2 of 2",
        "Layer 2 of 2",
        "Last step",
    ]
    assert len(shown[1]) < len(full[0])
    assert "Your last answer could not be used: expected one JSON array" in shown[1]
    assert "could not be used" not in shown[2]
    counted = parts(episode)
    assert (counted["retry"], counted["plan_fallback"], counted["unreadable"], counted["prompts"]) == (2, 1, 3, 5)
    assert counted["decided"] == 1


def test_a_plan_without_a_legal_action_is_no_op_without_a_retry(task: ReaganTask) -> None:
    episode = play(ReaganEnv(layers=1), task, [plan({"act": "fly"}), plan(UPDATE)])
    assert len(prompts(episode)) == 2
    assert parts(episode)["retry"] == 0


@pytest.mark.parametrize("bad", ["nonsense", plan({"act": "update", "predicted_label": "?"}), plan(NOTHING), "[]"])
def test_a_prediction_that_fails_twice_is_made_by_the_fallback(task: ReaganTask, bad: str) -> None:
    once = play(ReaganEnv(layers=1), task, [plan(NOTHING), bad, plan(UPDATE)])
    assert parts(once)["decided"] == 1
    twice = play(ReaganEnv(layers=1), task, [plan(NOTHING), bad, bad, plan(UPDATE)])
    assert twice.score is not None
    assert twice.outcome.stop is StopReason.ANSWER
    assert twice.score.labels["fallback_rule"] == "train"
    assert twice.score.labels["fallback_label"] == twice.score.labels["predicted"]
    assert (twice.score.total, parts(twice)["decided"], parts(twice)["retry"]) == (0.0, 0.0, 1.0)


def test_a_right_fallback_counts_as_accurate_and_not_as_decided(tasks: list[ReaganTask]) -> None:
    env, found = ReaganEnv(layers=1), 0
    for one in tasks:
        env.reset(one)
        turn(env, plan(*(action.model_dump() | {"act": action.tag} for action in env.player_actions("oracle-planner"))))
        turn(env, "nonsense")
        turn(env, "nonsense")
        score = env.score()
        assert score.labels["fallback_rule"] == ("local" if one.labelled_neighbours else "global")
        assert score.total == 0.0
        assert score.parts["accuracy"] == float(score.labels["predicted"] == score.labels["gold"])
        assert score.parts["accuracy_fallback"] == score.parts["accuracy"]
        assert score.parts["accuracy_decided"] is None
        found += bool(score.parts["accuracy"])
    assert found > len(tasks) / 2


def test_malformed_actions_of_any_dialect_count_once(task: ReaganTask) -> None:
    env = ReaganEnv()
    env.reset(task)
    for reason in ("no_action", "no_call", "unfinished_think", "unknown_tool"):
        env.step(Malformed(reason=reason, message="x"))
    assert (env.score().parts["unreadable"], env.score().parts["unknown_action"]) == (3, 1)


# Switches.


def test_every_option_does_something(tasks: list[ReaganTask]) -> None:
    """Some run of prompts, actions or posts differs from the one with the option at its default; `train_broadcast` has
    a test of its own."""
    changed: dict[str, Any] = {
        "layers": 3,
        "planning": False,
        "sources": "local",
        "strategy": "B",
        "anonymise": False,
        "broadcast": False,
        "diversity": 5.0,
        "top_k": 2,
        "max_actions": 1,
        "text_chars": 20,
        "rag_scope": "all",
        "majority_rule": True,
        "aggregate": "none",
        "world": "independent",
        "neighbours": 1,
    }
    for option, value in changed.items():
        assert trail(ReaganEnv(**{option: value}), tasks) != trail(ReaganEnv(), tasks), option
    rest = set(ReaganEnv.__init__.__kwdefaults__ or {}) - set(changed)
    assert rest == {"min_local", "embedding", "train_broadcast"}
    by_two, by_nine = ReaganEnv(strategy="B"), ReaganEnv(strategy="B", min_local=9)
    assert trail(by_two, tasks) != trail(by_nine, tasks)
    with pytest.raises(UserError, match="no-such-model"):
        ReaganEnv(embedding="./no-such-model").reset(tasks[0])


def trail(env: ReaganEnv, tasks: list[ReaganTask]) -> list[Any]:
    found: list[Any] = []
    for task in tasks[:12]:
        found.append(env.reset(task).text)
        turns = 0
        while not env.is_over:
            turns += 1
            actions = list(env.player_actions("oracle-planner"))
            if len(env.legal_actions()) > 1:
                words = f"word{turns}x1 word0x2"
                actions = [action for action in actions if not isinstance(action, NoOp)]
                actions += [GlobalAggregation(query=words, top_k=10)] if env.sources != "local" else []
            found += [env.step(action).observation.text for action in actions]
            found.append(env.post())
            step = env.close_turn()
            found.append((None if step is None else step.observation.text, env.legal_actions()))
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"layers": 5},
        {"layers": 0},
        {"top_k": 11},
        {"max_actions": 0},
        {"text_chars": 5},
        {"neighbours": 0},
        {"diversity": -1.0},
        {"min_local": -1},
        {"broadcast": False, "train_broadcast": True},
        {"sources": "none"},
        {"strategy": "C"},
        {"layers": "2"},
        {"layer": 2},
    ],
)
def test_an_option_that_cannot_be_meant_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        ReaganEnv(**checked_options(ReaganEnv, options, "the environment reagan"))


def test_without_planning_the_fixed_plan_is_played_and_only_the_prediction_asked_for(tasks: list[ReaganTask]) -> None:
    for task in tasks[:8]:
        fixed = play(ReaganEnv(planning=False), task, Player("oracle-planner"))
        planned = play(ReaganEnv(), task, Player("oracle-planner"))
        assert len(prompts(fixed)) == 1
        assert prompts(fixed)[0] == prompts(planned)[-1]
        assert parts(fixed)["layer2_rag_query"] == 1
    local = ReaganEnv(planning=False, sources="local")
    local.reset(max(tasks, key=lambda task: task.labelled_neighbours))
    assert {entry.source_type for entry in local.memory} == {"self", "local"}


def test_training_nodes_may_tell_their_label_in_layer_1(task: ReaganTask) -> None:
    env = ReaganEnv(train_broadcast=True)
    env.reset(task)
    assert [entry.source_type for entry in env.memory] == ["self"]
    turn(env, plan(NOTHING))
    told = env.memory[1:]
    assert {entry.source_type for entry in told} == {"broadcast"}
    assert all(entry.label_status == "gold" for entry in told)
    assert len(told) == task.labelled_neighbours
    turn(env, plan(NOTHING))
    assert env.memory[1:] == told


@pytest.mark.parametrize(("strategy", "shown"), [("A", True), ("B", False)])
def test_the_strategy_decides_about_global_examples(task: ReaganTask, strategy: Any, shown: bool) -> None:
    env = ReaganEnv(strategy=strategy, layers=1)
    env.reset(task)
    turn(env, plan(*(action.model_dump() | {"act": action.tag} for action in env.player_actions("oracle-planner"))))
    assert ("Examples of similar nodes" in env.prompt().text) is shown


def test_unlabelled_nodes_are_found_in_the_scope_all_only(tasks: list[ReaganTask], data: str) -> None:
    graph = open_graph(data)
    for scope, wanted in (("train", {"train"}), ("all", {"train", "val", "test"})):
        found = set()
        for task in tasks:
            env = ReaganEnv(rag_scope=scope)  # type: ignore[arg-type]
            env.reset(task)
            turn(env, plan({"act": "rag_query", "query": "word0x1 word1x2 word2x3", "top_k": 10}))
            for entry in env.memory[1:]:
                code = int(graph.split[graph.index_of(entry.source)])
                found.add(("train", "val", "test")[code])
                assert (entry.label is None) == (code != 0)
        assert found == wanted


def test_names_are_hidden_unless_asked_for(task: ReaganTask) -> None:
    plain, named = ReaganEnv(layers=1), ReaganEnv(layers=1, anonymise=False)
    for env in (plain, named):
        env.reset(task)
        turn(env, plan({"act": "retrieve", "target_nodes": names_of(env, labelled=True)}))
    assert "class 0" not in plain.prompt().text
    assert "Allowed labels: Label_0, Label_1, Label_2" in plain.prompt().text
    assert "Allowed labels: class 0, class 1, class 2" in named.prompt().text
    pairs = zip(plain.choices(), named.choices(), strict=True)
    assert [(a.predicted_label, b.predicted_label) for a, b in pairs] == [  # type: ignore[attr-defined]
        (f"Label_{i}", f"class {i}") for i in range(3)
    ]
    assert plain.prompt().text == named.prompt().text.replace("class ", "Label_")


def test_there_are_choices_in_the_prediction_only(task: ReaganTask) -> None:
    env = ReaganEnv(layers=1)
    env.reset(task)
    assert (env.choices(), Predict in env.legal_actions(), len(env.legal_actions())) == ((), True, 5)
    turn(env, plan(NOTHING))
    assert env.legal_actions() == (Predict,)
    assert len(env.choices()) == 3


# State.


def test_a_snapshot_holds_the_episode_and_not_the_graph(task: ReaganTask) -> None:
    env, other = ReaganEnv(), ReaganEnv()
    env.reset(task)
    turn(env, plan({"act": "rag_query"}, UPDATE))
    state = env.snapshot()
    assert len(state) < 10_000
    rest = [turn(env, plan({"act": "rag_query", "top_k": 2})), turn(env, plan(UPDATE)), env.score()]
    other.restore(state)
    assert [turn(other, plan({"act": "rag_query", "top_k": 2})), turn(other, plan(UPDATE)), other.score()] == rest
    assert pickle.loads(pickle.dumps(env)).score() == env.score()


def test_runs_have_no_hidden_state_between_them(tasks: list[ReaganTask]) -> None:
    env = ReaganEnv()
    once = [play(env, task, Player("oracle-planner")).model_dump(exclude={"seconds"}) for task in tasks[:5]]
    again = [play(ReaganEnv(), task, Player("oracle-planner")).model_dump(exclude={"seconds"}) for task in tasks[4::-1]]
    assert once == again[::-1]


# Graphs at the edge.


def test_an_isolated_node_and_one_without_text(tasks: list[ReaganTask]) -> None:
    by_node = {task.node: task for task in tasks}
    lonely = play(ReaganEnv(), by_node["0"], Player("oracle-planner"))
    assert "Neighbours: 0 in all" in prompts(lonely)[0]
    assert parts(lonely)["layer1_retrieve"] == 0
    mute = play(ReaganEnv(), by_node["1"], Player("oracle-planner"))
    assert "Its text: (none)" in prompts(mute)[0]
    assert any("your node has no text" in event.observation for event in mute.events)
    words = plan({"act": "rag_query", "query": "word0x1"})
    assert "Found 5 similar nodes" in play(ReaganEnv(), by_node["1"], [words]).events[0].observation
    strange = plan({"act": "rag_query", "query": "👻 שלום"})
    assert "Nothing was found" in play(ReaganEnv(), by_node["1"], [strange]).events[0].observation


def test_a_hub_is_read_by_similarity_and_its_prompt_stays_short(tmp_path: Path) -> None:
    n = 10_000
    draw = random.Random(0)
    texts = [" ".join(draw.choices([f"w{i % 2}v{k}" for k in range(9)], k=4)) for i in range(n)]
    nodes = [node("hub", "w0v1 w0v2 w0v3", label="0", split="test")] + [
        node(f"leaf {i}", text, label=str(i % 2), split="train" if i % 3 else "test") for i, text in enumerate(texts)
    ]
    data = write(tmp_path / "hub", nodes, [f"hub\tleaf {i}" for i in range(n)], {"directed": False})
    task = next(task for task in ReaganEnv.tasks(str(data)) if task.node == "hub")
    assert task.labelled_neighbours > 6_000
    episode = play(ReaganEnv(), task, Player("oracle-planner"))
    assert max(map(len, prompts(episode))) < 4_000
    assert "(30 of 6666 shown)" in prompts(episode)[0]
    assert episode.events[0].observation.startswith("Read 30 of 6666 neighbours")
    env = ReaganEnv()
    env.reset(task)
    env.step(LocalAggregation(target_nodes=[f"leaf {i}" for i in range(n)]))
    read = [entry.closeness for entry in env.memory[1:]]
    assert len(env.snapshot()) < 20_000
    assert min(read) > 0.5


def test_one_class_and_names_and_texts_of_any_script(tmp_path: Path) -> None:
    words = ["مرحبا بالعالم", "שלום עולם", "🦊🦊 fox", '"quoted", [x] {{ y }} </think>', "北京 上海"]
    nodes = [
        node(f"{word} {i}", f"{word} {i // 10}", label="only", split="train" if i % 2 else "test")
        for i, word in enumerate(words * 4)
    ]
    ids = [one["id"] for one in nodes]
    edges = [f"{ids[i]}\t{ids[i + 5]}" for i in range(15)]
    data = write(tmp_path / "g", nodes, edges, {"directed": False})
    for task in ReaganEnv.tasks(str(data)):
        episode = play(ReaganEnv(), task, Player("vote"))
        assert episode.score is not None
        assert episode.score.total == 1.0
        assert json.dumps(task.node, ensure_ascii=False) in prompts(episode)[0]
