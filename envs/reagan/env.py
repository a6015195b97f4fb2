"""ReaganEnv: one node of ReaGAN (arXiv 2508.00429) that gathers evidence for L layers and then predicts its label."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from agl.core import Action, Env, Malformed, Observation, Post, Score, Step, StopReason
from agl.errors import UserError
from agl.graphs.index import MU, RetrievalError
from envs.reagan import prompts
from envs.reagan.actions import Broadcast, GlobalAggregation, LocalAggregation, NoOp, Predict
from envs.reagan.fallback import Rule, fallback
from envs.reagan.faults import kind_of
from envs.reagan.labels import Labels
from envs.reagan.memory import Entry, deduplicated, examples, labelled, messages, summary
from envs.reagan.neighbourhood import Neighbourhood, cut, neighbourhood
from envs.reagan.players import PLAYERS, ballot, plan
from envs.reagan.scores import score
from envs.reagan.tasks import OpenSplit, ReaganTask, examples_for, open_split, tasks

MOST_SIMILAR = 10
"""Largest `top_k` of a query."""


class ReaganEnv(Env[ReaganTask]):
    """Options, each one an ablation or an open point of the paper:

    Args:
        layers: L, 1 to 4. The public code uses 1 on Cora and 2 on Citeseer.
        planning: False plays a fixed plan without asking the policy: all labelled neighbours, then the `top_k` nearest.
        sources: which of retrieve (`local`) and rag_query (`global`) exists.
        strategy: examples of the final prompt: A local and global ones, B global ones only if there are fewer than
            `min_local` local ones. (The public code's threshold is zero in effect; the paper's is two.)
        anonymise: labels are shown as Label_0, Label_1, ...
        broadcast: whether nodes may send messages.
        train_broadcast: training nodes send their text and label to all neighbours in layer 1. Off by default: what an
            agent did not ask for is not in its memory.
        diversity: mu of the label-diversity rerank of global examples; 0 switches it off.
        top_k: examples shown of each part, and results of a query that does not say how many; 1 to 10.
        max_actions: executed per plan; further ones are dropped.
        text_chars: longest text in prompts and messages.
        rag_scope: nodes that queries find: training nodes, or all. Unlabelled ones feed the summary only.
        majority_rule: the final prompt says to follow the majority (public code on Citeseer and Chameleon).
        aggregate: `concat` shows the first sentences of what is not among the examples; `none` does not.
        world: `shared` lets the nodes of a run read each other's messages, provisional labels and memories of earlier
            layers; `independent` plays each alone.
        embedding: vectors of the texts: `tfidf`, `minilm` or a sentence-transformers name.
        neighbours: most neighbours that are listed, read or heard at once: the most similar ones. (The public code
            takes the first 30 by id.)
    """

    name: ClassVar[str] = "reagan"
    task_type: ClassVar[type[ReaganTask]] = ReaganTask
    actions: ClassVar[tuple[type[Action], ...]] = (LocalAggregation, GlobalAggregation, Broadcast, Predict, NoOp)
    dialect: ClassVar[str] = "json_plan"
    metrics: ClassVar[tuple[str, ...]] = ("accuracy", "decided", "prompts", "retry", "faulty")
    random_bound: ClassVar[float] = 0.3
    players: ClassVar[tuple[str, ...]] = PLAYERS

    def __init__(
        self,
        *,
        layers: int = 2,
        planning: bool = True,
        sources: Literal["both", "local", "global"] = "both",
        strategy: Literal["A", "B"] = "A",
        min_local: int = 2,
        anonymise: bool = True,
        broadcast: bool = True,
        train_broadcast: bool = False,
        diversity: float = MU,
        top_k: int = 5,
        max_actions: int = 4,
        text_chars: int = 200,
        rag_scope: Literal["train", "all"] = "train",
        majority_rule: bool = False,
        aggregate: Literal["none", "concat"] = "concat",
        world: Literal["shared", "independent"] = "shared",
        embedding: str = "tfidf",
        neighbours: int = 30,
    ) -> None:
        """Raises:
        UserError: an option out of range, or one that another one makes void.
        """
        ranges = {
            "layers": (layers, 1, 4),
            "min_local": (min_local, 0, 10),
            "diversity": (diversity, 0, 10),
            "top_k": (top_k, 1, MOST_SIMILAR),
            "max_actions": (max_actions, 1, 64),
            "text_chars": (text_chars, 20, 10_000),
            "neighbours": (neighbours, 1, 1_000),
        }
        for option, (value, least, most) in ranges.items():
            if not least <= value <= most:
                raise UserError(f"expected {option} from {least} to {most}, got {value}")
        if train_broadcast and not broadcast:
            raise UserError("expected broadcast=true for train_broadcast=true, got broadcast=false; drop one of them")
        self.layers, self.planning, self.sources = layers, planning, sources
        self.strategy, self.min_local = strategy, min_local
        self.anonymise, self.broadcast, self.train_broadcast = anonymise, broadcast, train_broadcast
        self.diversity, self.top_k, self.max_actions, self.text_chars = diversity, top_k, max_actions, text_chars
        self.rag_scope, self.majority_rule, self.aggregate = rag_scope, majority_rule, aggregate
        self.world, self.embedding, self.neighbours = world, embedding, neighbours

    @classmethod
    def tasks(cls, source: str | None = None, *, seed: int = 0, limit: int | None = None) -> Sequence[ReaganTask]:
        """Test nodes of a graph; see `envs.reagan.tasks.tasks` for how a source names its split."""
        return tasks(source, seed, limit)

    @classmethod
    def facets(cls, task: ReaganTask) -> dict[str, str]:
        return {"labelled_neighbours": task.bucket}

    @classmethod
    def worked_examples(cls, task: ReaganTask, count: int) -> Sequence[ReaganTask]:
        """Training nodes with two or three labelled neighbours, the same for all nodes of a split."""
        return examples_for(task, count)

    def instructions(self) -> str:
        return prompts.instructions(planning=self.planning, layers=self.layers, anonymise=self.anonymise)

    def legal_actions(self) -> tuple[type[Action], ...]:
        """All that a plan may hold while layers are left, then the prediction alone."""
        if not self.planning or (self._task is not None and self._layer > self.layers):
            return (Predict,)
        absent = {
            LocalAggregation: self.sources == "global",
            GlobalAggregation: self.sources == "local",
            Broadcast: not self.broadcast,
        }
        return tuple(action for action in self.actions if not absent.get(action, False))

    # The graph is shared by all episodes of a process and no part of an episode's state.

    @property
    def _opened(self) -> OpenSplit:
        return open_split(self.task)

    @property
    def place(self) -> Neighbourhood:
        opened = self._opened
        row = opened.graph.index_of(self.task.node)
        return neighbourhood(opened, row, self.embedding, self.neighbours, self.text_chars)

    @property
    def labels(self) -> Labels:
        return Labels(self._opened.graph.class_names, self.anonymise)

    def begin(self, task: ReaganTask) -> Observation:
        place = self.place
        own = Entry(text=place.text, source=place.id, source_type="self", layer=0)
        self._memory: list[Entry] = [own]
        self._layer = 1
        self._label: int | None = None
        self._provisional: int | None = None
        self._said: list[dict[str, Any]] = []
        self._heard: dict[str, dict[str, Any]] = {}
        self._faults: Counter[str] = Counter()
        self._counts: Counter[str] = Counter(prompts=1)
        self._retrying = False
        self._open_turn()
        while not self.planning and self._layer <= self.layers:
            for action in plan("oracle-planner", place.labelled, self._fixed):
                self._execute(action)
            self._close_layer()
        return self.prompt()

    @property
    def memory(self) -> tuple[Entry, ...]:
        """What the node knows, its own text first."""
        return tuple(self._memory)

    @property
    def _fixed(self) -> tuple[type[Action], ...]:
        found: dict[str, tuple[type[Action], ...]] = {"local": (LocalAggregation,), "global": (GlobalAggregation,)}
        return found.get(self.sources, (LocalAggregation, GlobalAggregation))

    def _open_turn(self) -> None:
        self._executed = 0
        self._read = False
        self._faulty = False
        self._complaint = ""

    @property
    def _predicting(self) -> bool:
        return self._layer > self.layers

    def act(self, action: Action | Malformed) -> Step:
        if isinstance(action, Malformed):
            kind = kind_of(action)
            self._read |= kind != "unreadable"
            return Step(observation=self._fault(kind, action.message))
        self._read = True
        if not isinstance(action, self.legal_actions()):
            legal = ", ".join(one.tag for one in self.legal_actions())
            return Step(observation=self._fault("unknown_action", f"{action.tag} is not possible now, only {legal}"))
        if self._executed == self.max_actions:
            return Step(observation=self._fault("over_limit", f"a plan has at most {self.max_actions} actions"))
        reply = self._execute(action)
        ended = self._label is not None
        return Step(observation=reply, terminated=ended, stop=StopReason.ANSWER if ended else None)

    def _fault(self, kind: str, message: str) -> Observation:
        self._faults[kind] += 1
        self._counts["faulty"] += not self._faulty
        self._faulty = True
        self._complaint = message
        return Observation(text=f"Error ({kind}): {message}.", is_error=True)

    def _execute(self, action: Action) -> Observation:
        match action:
            case LocalAggregation():
                done = self._retrieve(action)
            case GlobalAggregation():
                done = self._query(action)
            case Broadcast():
                done = self._broadcast(action)
            case Predict():
                done = self._update(action)
            case NoOp():
                done = Observation(text="Nothing was done.")
            case _:
                raise TypeError(f"{self.name} takes no {type(action).__name__}")
        if not done.is_error:
            self._executed += 1
            self._counts[f"layer{self._layer}_{action.tag}"] += 1
        return done

    def _targets(self, given: Sequence[str]) -> tuple[list[str], Observation | None]:
        """The neighbours among `given`, and what to say when there is none."""
        known = [name for name in dict.fromkeys(given) if name in self.place.neighbours]
        if len(known) == len(set(given)) and known:
            return known, None
        strange = sorted(set(given) - set(known))
        said = f"not neighbours of your node: {', '.join(strange)[:200]}" if strange else "no target was given"
        complaint = self._fault("bad_target", said)
        return known, None if known else complaint

    def _retrieve(self, action: LocalAggregation) -> Observation:
        targets, complaint = self._targets(action.target_nodes)
        if complaint is not None:
            return complaint
        found = self.place.read(targets, action.info_type, self._layer, self._heard)
        return self._store(found, f"Read {min(len(targets), self.neighbours)} of {len(targets)} neighbours")

    def _query(self, action: GlobalAggregation) -> Observation:
        wanted = self._wanted(action.top_k)
        try:
            found = self.place.search(str(action.query).strip(), wanted, self.rag_scope == "all", self._layer)
        except RetrievalError as error:
            return Observation(text=f"Nothing was found: {error}.")
        return self._store(found, f"Found {len(found)} similar nodes")

    def _wanted(self, given: int | float | str | None) -> int:
        if given is None:
            return self.top_k
        try:
            number = round(float(given))
        except (ValueError, OverflowError):
            number = self.top_k
        number = min(MOST_SIMILAR, max(1, number))
        if type(given) is not int or given != number:
            self._fault("clamped", f"top_k must be a whole number from 1 to {MOST_SIMILAR}; {number} was taken")
        return number

    def _broadcast(self, action: Broadcast) -> Observation:
        targets, complaint = self._targets(action.target_nodes)
        if complaint is not None:
            return complaint
        self._said.append({"to": targets, "text": cut(action.message, self.text_chars)})
        return Observation(text=f"Sent to {len(targets)} neighbours.")

    def _update(self, action: Predict) -> Observation:
        label = self.labels.find(action.predicted_label)
        if label is None:
            allowed = ", ".join(self.labels.shown)
            return self._fault("bad_label", f"{str(action.predicted_label)[:80]!r} is none of {allowed}")
        if self.place.is_train and not self.task.is_example:
            return self._fault("train_update", "the label of a training node is known and cannot be set")
        if self._predicting:
            self._label = label
            return Observation(text="")
        self._provisional = label
        return Observation(text=f"Your provisional label is {self.labels.shown[label]}.")

    def _store(self, found: Sequence[Entry], what: str) -> Observation:
        before = len(self._memory)
        self._memory = deduplicated([*self._memory, *found])
        return Observation(text=f"{what}; {len(self._memory) - before} new in memory.")

    # Turns and layers.

    @property
    def _repeats(self) -> bool:
        """Whether the turn that is being closed is asked for once more."""
        return not self._retrying and (self._predicting or not self._read)

    def end_turn(self) -> Step:
        """Go to the next layer, or ask once more after a text that was no plan. After two failures the fallback acts:
        a plan is no_op, a prediction `envs.reagan.fallback`."""
        complaint = self._complaint
        if self._repeats:
            self._retrying = True
            self._counts["retry"] += 1
            return self._show(complaint or "nothing was said")
        self._retrying = False
        if self._predicting:
            return Step(observation=Observation(text=""), terminated=True, stop=StopReason.ANSWER)
        if not self._read:
            self._counts["plan_fallback"] += 1
        self._close_layer()
        return self._show()

    def _show(self, complaint: str = "") -> Step:
        self._open_turn()
        self._counts["prompts"] += 1
        return Step(observation=self.prompt(complaint))

    def _close_layer(self) -> None:
        if self._layer == 1 and self.train_broadcast:
            place = self.place
            rows = [place.neighbours[name] for name in place.labelled[: self.neighbours]]
            self._store([place.entry(row, "broadcast", 2) for row in rows], "")
        self._layer += 1
        self._executed = 0
        self._said = []

    @property
    def exchanges(self) -> bool:
        return self.world == "shared"

    def post(self) -> Post | None:
        """The messages of this layer, the provisional label, and the local examples of this node."""
        if self.world == "independent" or self._predicting or self._repeats:
            return None
        near = [entry for entry in labelled(self._memory, "local") if entry.source_type == "local"][: self.top_k]
        memory = [entry.model_dump(include={"source", "label", "label_status"}) for entry in near]
        return Post(round=self._layer, notes={"messages": self._said, "label": self._provisional, "memory": memory})

    def receive(self, posts: Mapping[str, Post]) -> None:
        """Keep what neighbours said: their messages of the layer that ends, and the latest of the rest."""
        place = self.place
        inbox = []
        for name, row in place.neighbours.items():
            post = posts.get(name)
            if post is None:
                continue
            self._heard[name] = {key: post.notes[key] for key in ("label", "memory")}
            if post.round == self._layer:
                for message in post.notes["messages"]:
                    if place.id in message["to"]:
                        known = place.entry(row, "broadcast", self._layer + 1, predicted=post.notes["label"])
                        inbox.append(known.model_copy(update={"text": message["text"]}))
        self._store(inbox[: self.neighbours], "")

    def prompt(self, complaint: str = "") -> Observation:
        place, labels, short = self.place, self.labels, bool(complaint)
        k = min(2, self.top_k) if short else self.top_k
        near, far = examples(self._memory, k, self.diversity, self.strategy, self.min_local)
        told = messages(self._memory, k)
        with_summary = self.aggregate == "concat" and not short
        aggregated = summary(self._memory, [*near, *far], 3) if with_summary else {}
        seen: dict[str, Any] = {
            "node": place.id,
            "text": cut(place.text, self.text_chars // 2) if short else place.text,
            "provisional": None if self._provisional is None else labels.shown[self._provisional],
            "names": labels.shown,
            "near": near,
            "far": far,
            "messages": told,
            "summary": {"local": aggregated.get("local", ()), "global": aggregated.get("global", ())},
            "complaint": cut(complaint, 200),
        }
        if self._predicting:
            return Observation(text=prompts.prediction(labels=labels.shown, majority_rule=self.majority_rule, **seen))
        text = prompts.planning(
            layer=self._layer,
            layers=self.layers,
            max_actions=self.max_actions,
            short=short,
            degree=len(place.neighbours),
            labelled=place.labelled[: self.neighbours],
            labelled_total=len(place.labelled),
            others=place.unlabelled[: self.neighbours],
            labels=labels.shown,
            **seen,
        )
        return Observation(text=text)

    # Scores and players.

    def _decision(self) -> tuple[int, Rule | None]:
        """The label as it stands, and the rule that gave it where the policy did not."""
        if self._label is not None:
            return self._label, None
        return fallback(self._memory, self._opened.train_counts)

    def score(self) -> Score:
        """See `envs.reagan.scores.score`."""
        label, rule = self._decision()
        planned = self.actions if self.planning else self._fixed
        tags = [action.tag for action in self.actions if action in planned]
        steps = [f"layer{layer}_{tag}" for layer in range(1, self.layers + 1) for tag in tags]
        return score(self.task, self._opened.graph.class_names, label, rule, self._faults, self._counts, steps)

    def choices(self) -> Sequence[Action]:
        return [Predict(predicted_label=name) for name in self.labels.shown] if self._predicting else ()

    def oracle(self) -> Action:
        """The plan of the best player, then the true label."""
        if self._predicting:
            return Predict(predicted_label=self.labels.shown[self.task.gold])
        return plan("oracle-planner", self.place.labelled, self.legal_actions())[0]

    def random_action(self, rng: random.Random) -> Action:
        if self._predicting:
            return rng.choice(self.choices())
        place = self.place
        targets = rng.sample(sorted(place.neighbours), min(3, len(place.neighbours)))
        drawn: dict[type[Action], Action] = {
            LocalAggregation: LocalAggregation(target_nodes=targets),
            GlobalAggregation: GlobalAggregation(query=place.id, top_k=rng.randint(1, MOST_SIMILAR)),
            Broadcast: Broadcast(target_nodes=targets, message="I am here."),
            Predict: Predict(predicted_label=rng.choice(self.labels.shown)),
            NoOp: NoOp(),
        }
        needs_neighbours = () if targets else (LocalAggregation, Broadcast)
        return drawn[rng.choice([action for action in self.legal_actions() if action not in needs_neighbours])]

    def player_actions(self, player: str) -> Sequence[Action]:
        if not self._predicting:
            return plan(player, self.place.labelled, self.legal_actions())
        label = ballot(player, self._memory)
        return [NoOp() if label is None else Predict(predicted_label=self.labels.shown[label])]
