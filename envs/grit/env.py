"""GritEnv: GRAIN's episode (arXiv 2608.27142) on GRIT items: write the graph, let the tool solve it, answer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import jinja2

from agl.core import Action, Answer, Env, Malformed, Observation, Score, Step, StopReason
from agl.errors import DataError, UserError
from agl.graphs.named import GraphError, NamedGraph, read_graph
from agl.graphs.solve import PROBLEMS, Limits, Solution, SolveError, solve
from envs.grit.actions import Solve
from envs.grit.answers import (
    Reading,
    boxed,
    count_answers,
    gold_answer,
    random_answer,
    read_answer,
    tool_answer,
    tool_call,
    tool_hint,
)
from envs.grit.build import SPLITS, Generated, Recipe, example
from envs.grit.external.formats import load
from envs.grit.items import TASKS, GritTask, named_graph, surfaces
from rewards.compose import Counted, GatedReward, counted_graph
from rewards.protocol import flaw
from rewards.structure import compare

Mode = Literal["tools", "cot", "direct"]
MAX_RESULT = 6_000
"""Characters of a tool result at most; names are as long as the model makes them."""


class GritEnv(Env[GritTask]):
    """Options: `mode`, `max_rounds` tool calls, the open points of the reward (`rewards.compose.GatedReward`), and
    `solver_seconds` after which a call is answered by an error.

    Modes, all on the same items: `tools` is GRAIN; the text-only baselines have no tool, write no graph and are scored
    by the answer alone, `cot` after reasoning in words, `direct` at once.
    """

    name: ClassVar[str] = "grit"
    task_type: ClassVar[type[GritTask]] = GritTask
    actions: ClassVar[tuple[type[Action], ...]] = (Solve, Answer)
    dialect: ClassVar[str] = "tags"
    metrics: ClassVar[tuple[str, ...]] = ("valid", "s_inv", "edge_f1", "exact", "acc_value", "tool_calls")
    random_bound: ClassVar[float] = 0.1

    def __init__(
        self,
        *,
        mode: Mode = "tools",
        max_rounds: int = 6,
        rho_err: float = -1.0,
        lambda_inv: float = 1.0,
        value_only: float = 0.0,
        counted: Counted = "last",
        solver_seconds: float = 10.0,
    ) -> None:
        if max_rounds < 1:
            raise UserError(f"expected max_rounds of at least 1, got {max_rounds}")
        if mode not in get_args(Mode):
            raise UserError(f"expected mode to be one of {', '.join(get_args(Mode))}, got {mode!r}")
        self.mode: Mode = mode
        self.thinking = mode != "direct"
        self.max_rounds = max_rounds
        self.rule = GatedReward(rho_err, lambda_inv, value_only, counted)
        self.limits = Limits(seconds=solver_seconds)

    @classmethod
    def tasks(cls, source: str | None = None, *, seed: int = 0, limit: int | None = None) -> Sequence[GritTask]:
        """Items of a generated split (`mini` by default), or of a file: of GRIT, or of another benchmark, whose format
        is detected or named (`greal:FILE`; see `envs.grit.external.formats`)."""
        source = source or "mini"
        if source in SPLITS:
            return Generated(source, Recipe(seed=seed), limit)
        if ":" not in source and not Path(source).is_file():
            raise DataError(f"expected a GRIT split ({', '.join(SPLITS)}) or a file of items, got {source!r}")
        return load(source, limit)

    @classmethod
    def facets(cls, task: GritTask) -> dict[str, str]:
        if task.checker is not None:
            return {"task": task.task, "benchmark": task.checker.benchmark}
        return {"task": task.task, "form": task.form, "scheme": task.scheme}

    @classmethod
    def cluster(cls, task: GritTask) -> str:
        return task.graph_id

    @classmethod
    def worked_examples(cls, task: GritTask, count: int) -> Sequence[GritTask]:
        """Graphs of four nodes with the same task, form and scheme; none for items of other benchmarks."""
        if task.checker is not None:
            return ()
        return [example(task.task, (task.form, task.scheme), index) for index in range(count)]

    def legal_actions(self) -> tuple[type[Action], ...]:
        return self.actions if self.mode == "tools" else (Answer,)

    def instructions(self) -> str:
        return _instructions(self.mode, self.max_rounds)

    def begin(self, task: GritTask) -> Observation:
        self._gold = named_graph(task)
        self._names = surfaces(task)
        self._graphs: list[NamedGraph] = []
        self._solution: Solution | None = None
        self._calls = self._errors = self._streak = 0
        self._malformed: list[str] = []
        self._answer: str | None = None
        hint = tool_hint(task) if self.mode == "tools" else ""
        return Observation(text=task.question + hint)

    def act(self, action: Action | Malformed) -> Step:
        if isinstance(action, Malformed):
            self._malformed.append(action.reason)
            self._streak += 1
            note = Observation(text=f"Error ({action.reason}): {action.message}", is_error=True)
            if self._streak == 2:
                return Step(observation=note, terminated=True, stop=StopReason.INVALID)
            return Step(observation=note)
        self._streak = 0
        if isinstance(action, Answer):
            self._answer = action.text
            return Step(observation=Observation(text=""), terminated=True, stop=StopReason.ANSWER)
        if not isinstance(action, Solve):
            raise TypeError(f"{self.name} takes Solve or Answer, got {type(action).__name__}")
        if self.mode != "tools":
            return Step(observation=Observation(text="Error (no_tool): there is no tool; answer.", is_error=True))
        if self._calls == self.max_rounds:
            note = Observation(text=f"Error (no_calls_left): all {self.max_rounds} calls are used.", is_error=True)
            return Step(observation=note, truncated=True, stop=StopReason.MAX_TURNS)
        return Step(observation=self._call(action))

    def _call(self, action: Solve) -> Observation:
        self._calls += 1
        try:
            graph = read_graph(action.graph)
            self._solution = solve(action.problem_type, graph, action.parameters, limits=self.limits)
            self._graphs.append(graph)
            text, failed = self._solution.text(), False
        except (GraphError, SolveError) as error:
            self._errors += 1
            text, failed = f"Error ({error.code}): {error}", True
        if len(text) > MAX_RESULT:
            text = f"{text[:MAX_RESULT]}... (cut)"
        if self._calls == self.max_rounds:
            text += "\nThis was the last call; give the answer now."
        return Observation(text=text, is_error=failed)

    def score(self) -> Score:
        """`total` is GRIT's `acc`, `reward` Eq. 3 of GRAIN; without a tool, Eq. 3 without its graph."""
        task, rule = self.task, self.rule
        count = None if self._answer is None else count_answers(task, self._answer)
        reading = Reading()
        if self._answer is not None and (count == 1 or task.checker is not None):
            reading = read_answer(task, self._gold, self._names, self._answer)
        has_tool = self.mode == "tools"
        fault = flaw(
            self._malformed,
            calls_succeeded=len(self._graphs),
            boxes=count,
            readable=reading.readable,
            needs_call=has_tool and tool_call(task) is not None,
        )
        structures = [compare(graph, self._gold, self._names) for graph in self._graphs]
        structure = counted_graph(structures, rule.counted)
        r_ans = rule.answer_part(reading.right, reading.value_right)
        reward = rule.total(valid=fault is None, r_ans=r_ans, s_inv=structure.jaccard if has_tool else 0.0)
        recovery: dict[str, float | None] = {
            "s_inv": structure.jaccard,
            "node_f1": structure.node_f1,
            "edge_f1": structure.edge_f1,
            "exact": float(structure.exact),
            "parse": float(bool(self._graphs)),
        }
        labels = {"answer": reading.code, "flaw": fault.value if fault else "none"}
        return Score(
            total=float(reading.right),
            reward=reward,
            parts={
                **reading.parts,
                "acc": float(reading.right),
                "acc_value": float(reading.value_right),
                "valid": float(fault is None),
                "r_ans": r_ans,
                **(recovery if has_tool else dict.fromkeys(recovery)),
                "rounds": float(self._calls + 1),
                "tool_calls": float(self._calls),
                "tool_errors": float(self._errors),
                "malformed": float(len(self._malformed)),
            },
            labels={"structure": structure.error_class.value, **labels} if has_tool else labels,
        )

    def oracle(self) -> Action:
        """First the true graph with the right parameters, then the answer that the tool gave; without a tool, at once
        the answer."""
        task = self.task
        if self.mode != "tools":
            return Answer(text=boxed(gold_answer(task)))
        if (told := self._told()) is not None:
            return Answer(text=told)
        if (call := tool_call(task)) is not None and self._calls < self.max_rounds:
            return Solve(problem_type=call[0], graph=self._gold.to_json(), parameters=call[1])
        return Answer(text=boxed(gold_answer(task)))

    def _told(self) -> str | None:
        """The answer of the last successful call, if it answers the question."""
        solution = self._solution
        if self.task.checker is not None:
            return boxed(gold_answer(self.task)) if self._graphs else None
        if solution is None or solution.problem_type != self.task.task:
            return None
        text = boxed(tool_answer(solution))
        return text if read_answer(self.task, self._gold, self._names, text).right else None

    def oracle_thought(self) -> str:
        if self.mode == "direct":
            return ""
        if self.task.checker is not None:
            return "I go through the connections in the question one by one."
        if self.mode == "cot":
            return (
                f"I go through the connections one by one and work out the {_TITLES[self.task.task]} question by hand."
            )
        if self._calls:
            return "The tool has solved it; I copy its result."
        rng = random.Random(f"{self.task.id}/thought")
        edges = "each connection with its weight" if self.task.weighted else "each connection"
        return rng.choice(
            (
                f"This is a {_TITLES[self.task.task]} problem. I list the nodes in order and write down {edges} once.",
                f"I read off {edges} and pass the graph to the tool as {self.task.task}.",
                f"The question asks for {self.task.task}. I write the graph exactly: first the nodes, then {edges}.",
            )
        )

    def random_action(self, rng: random.Random) -> Action:
        """A call on a random graph over the true nodes, or a random answer of the right shape."""
        task = self.task
        nodes = list(task.nodes)
        call = tool_call(task) if self.mode == "tools" else None
        if call is not None and self._calls < self.max_rounds and rng.random() < 0.5:
            weight = 10 if task.weighted else 1
            edges = [(u, v, rng.randint(1, weight)) for u, v in pairwise(rng.sample(nodes, len(nodes)))]
            graph = NamedGraph(task.nodes, tuple(edges), task.directed, task.weighted)
            return Solve(problem_type=call[0], graph=graph.to_json(), parameters=call[1])
        if task.checker is not None:
            return Answer(text=boxed(random_answer(task, rng)))
        picked = rng.sample(nodes, rng.randint(1, len(nodes)))
        shuffled = rng.sample(nodes, len(nodes))
        number = rng.randint(1, 10 * len(nodes))
        values: dict[str, dict[str, Any]] = {
            "shortest_path": {"path": picked, "cost": number},
            "tsp": {"tour": shuffled, "cost": number},
            "coloring": {"colors": 3, "assignment": {node: rng.randint(1, 3) for node in nodes}},
            "vertex_cover": {"size": len(picked), "nodes": picked},
            "bfs": {"order": shuffled},
            "centrality": {"nodes": picked},
        }
        return Answer(text=boxed(values[task.task]))


_TITLES = {
    "shortest_path": "shortest path",
    "bfs": "breadth-first search",
    "tsp": "travelling salesman",
    "coloring": "colouring",
    "vertex_cover": "vertex cover",
    "centrality": "centrality",
}


_SHOWN = {"bfs": ("start", "order")}
"""Parameters that the prompt explains beside the required ones."""


@cache
def _instructions(mode: Mode, max_rounds: int) -> str:
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    prompts = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined)
    if mode != "tools":
        return prompts.get_template("instructions_text.jinja").render(mode=mode).strip()
    problems = [(task, PROBLEMS[task], _SHOWN.get(task, PROBLEMS[task].required)) for task in TASKS]
    return prompts.get_template("instructions.jinja").render(max_rounds=max_rounds, problems=problems).strip()
