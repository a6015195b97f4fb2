"""AgentGL's episodes (arXiv 2604.05846): search the graph around a node or a pair within a budget, then answer."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, TypeVar, get_args

from agl.core import Action, Env, Malformed, Observation, Score, Step, StopReason
from agl.errors import UserError
from agl.graphs.index import Index
from agl.graphs.view import GraphView, NodeTarget
from envs.agentgl import players, prompts
from envs.agentgl.actions import Answer, Search
from envs.agentgl.links import Links
from envs.agentgl.pairs import search_pair
from envs.agentgl.pools import Found, Pool, PoolOptions, Profile, read_pool, search
from envs.agentgl.speech import Speech
from envs.agentgl.tasks import (
    GraphTask,
    LpTask,
    NcTask,
    checked_graph,
    index_of,
    links_of,
    node_tasks,
    pair_tasks,
    train_mask,
)
from rewards import navigation

GraphTaskT = TypeVar("GraphTaskT", bound=GraphTask)

BUDGETS: dict[Profile, tuple[int, int]] = {"paper": (4, 4), "code": (6, 5)}
"""Searches that are allowed, and that the prompt speaks of: in the released code the two differ."""
MOST_REFUSED = 3
"""So many refusals in a row (malformed, or beyond the budget) end the episode."""


class _AgentGl(Env[GraphTaskT]):
    """Options:

    profile: numbers of the paper or of the released code, where they differ (budget, salience, reward, unknown pools).
    budget: searches of an episode, enforced here and named in the prompt; None takes those of the profile.
    stage: reward of stage 1 or 2; 0 is plain accuracy, for evaluation.
    rtt: whether a sentence after each result asks if another search is needed; None: in stage 2 only.
    depth: form of the reasoning density term of stage 2; None takes that of the profile.
    k, lambda_, two_hop, salience, preview, show_labels: see `envs.agentgl.pools.PoolOptions`; `k` holds for every
        pool, `preview` counts characters; None takes what paper or code have.
    label_list: whether the question lists the classes (the released code lists none for arXiv); nodes only.
    leaky: hides nothing of the graph, to measure what a leak is worth.
    embedding: encoder of the retrieval index (`tfidf`, `minilm`, a sentence-transformers name or folder).
    """

    actions: ClassVar[tuple[type[Action], ...]] = (Search, Answer)
    dialect: ClassVar[str] = "queries"
    metrics: ClassVar[tuple[str, ...]] = ("searches", "pools", "answered", "strict")
    kind: ClassVar[navigation.TaskKind]

    def __init__(
        self,
        *,
        profile: Profile = "paper",
        budget: int | None = None,
        stage: Literal[0, 1, 2] = 0,
        rtt: bool | None = None,
        depth: navigation.Depth | None = None,
        k: int | None = None,
        lambda_: float = 0.5,
        two_hop: Literal["exact", "upto"] = "exact",
        salience: Literal["personalised", "global"] | None = None,
        preview: int | None = None,
        show_labels: Literal["none", "train"] = "none",
        label_list: bool = True,
        leaky: bool = False,
        embedding: str = "tfidf",
    ) -> None:
        _one_of("profile", profile, get_args(Profile))
        _one_of("stage", stage, (0, 1, 2))
        _one_of("depth", depth, (None, *get_args(navigation.Depth)))
        _one_of("two_hop", two_hop, ("exact", "upto"))
        _one_of("salience", salience, (None, "personalised", "global"))
        _one_of("show_labels", show_labels, ("none", "train"))
        for name, value, least in (("budget", budget, 0), ("k", k, 1), ("preview", preview, 1)):
            if value is not None and value < least:
                raise UserError(f"expected {name} of at least {least}, got {value}")
        if not 0 <= lambda_ <= 1:
            raise UserError(f"expected lambda_ from 0 to 1, got {lambda_}")
        if depth is not None and (stage == 0 or (stage == 1 and profile == "paper")):
            raise UserError("expected depth only where the reward has a density term: in stage 2, or in profile code")
        if self.kind == "lp" and not label_list:
            raise UserError("expected label_list with agentgl-nc only: the question about a link lists no classes")
        self.profile: Profile = profile
        self.budget, self.told_budget = BUDGETS[profile] if budget is None else (budget, budget)
        self.stage, self.depth = stage, depth
        self.rtt = stage == 2 if rtt is None else rtt
        self.label_list, self.leaky, self.embedding = label_list, leaky, embedding
        changes: dict[str, Any] = {"lambda_": lambda_, "two_hop": two_hop, "show_labels": show_labels}
        changes |= {} if salience is None else {"salience": salience}
        changes |= {} if preview is None else {"preview_chars": preview}
        changes |= {} if k is None else {"k": dict.fromkeys(Pool, k)}
        self.options = self._pool_options(profile, changes)

    @staticmethod
    @abstractmethod
    def _pool_options(profile: Profile, changes: dict[str, Any]) -> PoolOptions: ...

    @property
    @abstractmethod
    def view(self) -> GraphView:
        """The graph as this episode may see it. Made anew when asked for, so that an env is small and copies well."""

    @abstractmethod
    def _question(self) -> str: ...

    @abstractmethod
    def _look(self, pool: Pool, query: str) -> Found: ...

    @property
    @abstractmethod
    def gold(self) -> str: ...

    @abstractmethod
    def _classes(self) -> Sequence[str]:
        """All possible answers."""

    @abstractmethod
    def _guess(self, player: str) -> str:
        """What one of the players answers now."""

    @classmethod
    def facets(cls, task: GraphTaskT) -> dict[str, str]:
        return {"graph": task.id.split("/")[1]}

    @property
    def index(self) -> Index:
        return index_of(self.task.graph, self.embedding)

    def begin(self, task: GraphTaskT) -> Observation:
        checked_graph(task)
        self._speech = Speech()
        self._found: list[Found] = []
        self._used = self._errors = self._malformed = self._excess = self._streak = 0
        self._fresh: Pool | None = None
        self._answer: str | None = None
        return Observation(text=self._question())

    def act(self, action: Action | Malformed) -> Step:
        self._speech.hear(action)
        if isinstance(action, Malformed):
            self._malformed += 1
            return self._refuse(action.reason, action.message)
        if isinstance(action, Search):
            return self._search(action)
        if not isinstance(action, Answer):
            raise TypeError(f"{self.name} takes Search or Answer, got {type(action).__name__}")
        if self._speech.in_think:
            self._malformed += 1
            return self._refuse("unfinished_think", "close the reasoning with </think>, then answer.")
        self._answer = action.text
        return Step(observation=Observation(text=""), terminated=True, stop=StopReason.ANSWER)

    def _refuse(self, code: str, message: str) -> Step:
        self._streak += 1
        note = Observation(text=f"Error ({code}): {message}", is_error=True)
        if self._streak < MOST_REFUSED:
            return Step(observation=note)
        return Step(observation=note, truncated=True, stop=StopReason.INVALID)

    def _search(self, action: Search) -> Step:
        if self._used == self.budget:
            self._excess += 1
            return self._refuse("budget_used", prompts.last(self.budget))
        self._used += 1
        self._streak = 0
        pool = read_pool(action.pool)
        if pool is None and self.profile == "code":
            pool = Pool.SIMILAR
        if pool is None:
            self._errors += 1
            legal = ", ".join(pool.value for pool in Pool)
            said = prompts.plain(action.pool, 40)
            text = f"Error (unknown_pool): expected one of the pools {legal} before a colon, got {said!r}."
            return Step(observation=Observation(text=text, is_error=True))
        found = self._look(pool, action.query)
        self._found.append(found)
        self._speech.searched()
        self._fresh = pool
        return Step(observation=Observation(text=prompts.results(self.view, found, self.options)))

    def end_turn(self) -> Step | None:
        """Asks in stage 2 whether to search on, and says when the budget is used up."""
        self._speech.end_turn()
        fresh, self._fresh = self._fresh, None
        notes = [prompts.reflect(fresh)] if fresh is not None and self.rtt else []
        if fresh is not None and self._used == self.budget:
            notes.append(prompts.last(self.budget))
        return Step(observation=Observation(text="\n".join(notes))) if notes else None

    def score(self) -> Score:
        """`total` is accuracy by the comparison that the reward uses; `reward` is that of the stage, or `total`."""
        transcript = navigation.Transcript(
            spoken=self._speech.parts,
            searches=tuple(navigation.Search(found.pool.value, len(found)) for found in self._found),
            answer=self._answer,
            gold=self.gold,
        )
        right = self._answer is not None and navigation.is_correct(self._answer, self.gold)
        known = self._answer is not None and any(navigation.is_correct(self._answer, name) for name in self._classes())
        returned = {found.pool for found in self._found if len(found)}
        parts: dict[str, float | None] = {
            "accuracy": float(right),
            "strict": float(self._answer == self.gold),
            "answered": float(self._answer is not None),
            "searches": float(len(self._found)),
            **{f"searches_{pool.value}": float(sum(f.pool is pool for f in self._found)) for pool in Pool},
            "pools": float(len(returned)),
            "search_errors": float(self._errors),
            "over_budget": float(self._excess),
            "malformed": float(self._malformed),
            **self._extra_parts(),
        }
        reward = float(right)
        if self.stage:
            earned = navigation.navigation_reward(
                transcript, stage=self.stage, profile=self.profile, task=self.kind, depth=self.depth
            )
            reward = earned.total
            parts |= {f"reward_{name}": value for name, value in earned.parts.items()}
        outcome = "right" if right else "wrong" if known else "none" if self._answer is None else "unknown"
        labels = {"outcome": outcome, "gold": self.gold, "answer": "" if self._answer is None else self._answer[:100]}
        labels |= {"show_labels": self.options.show_labels, "leak": "leaky" if self.leaky else "none"}
        return Score(total=float(right), reward=reward, parts=parts, labels=labels)

    def _extra_parts(self) -> dict[str, float | None]:
        return {}

    def oracle(self) -> Action:
        """Each pool once, as far as the budget goes, then the truth."""
        tried = {found.pool for found in self._found}
        left = [pool for pool in Pool if pool not in tried]
        if left and self._used < self.budget:
            return Search(pool=left[0].value, query=self._words()).placed(self._speech.empty)
        return Answer(text=self.gold).placed(self._speech.empty)

    def oracle_thought(self) -> str:
        if not self._found:
            return "I look at the graph around the target before I judge by its text alone."
        return f"The {self._found[-1].pool.value} pool has told what it can; I weigh it against the text."

    def _words(self) -> str:
        """The beginning of a text that the question shows."""
        view = self.view
        return prompts.plain(view.text(view.targets[0]), 60)

    def random_action(self, rng: random.Random) -> Action:
        if self._used < self.budget and rng.random() < 0.5:
            return Search(pool=rng.choice(list(Pool)).value, query=self._words())
        return Answer(text=rng.choice(self._classes()))

    def player_actions(self, player: str) -> Sequence[Action]:
        """One search or the answer. `all-tools` asks each pool once, `random-tool` draws pools as long as the budget
        allows, `probe` asks the two hop pools, the others search nothing."""
        if player not in self.players:
            raise UserError(f"expected a player of {self.name} ({', '.join(self.players)}), got {player!r}")
        wanted: Sequence[Pool] = ()
        if player == "all-tools":
            wanted = list(Pool)
        elif player == "random-tool":
            wanted = random.Random(f"{self.task.id}/{self.task.seed}").choices(list(Pool), k=self.budget)
        elif player == "probe":
            wanted = (Pool.ONE_HOP, Pool.TWO_HOP)
        if self._used < min(len(wanted), self.budget):
            return [Search(pool=wanted[self._used].value, query="").placed(self._speech.empty)]
        return [Answer(text=self._guess(player)).placed(self._speech.empty)]


class AgentglNc(_AgentGl[NcTask]):
    """Name the class of a node."""

    name: ClassVar[str] = "agentgl-nc"
    task_type: ClassVar[type[NcTask]] = NcTask
    kind: ClassVar[navigation.TaskKind] = "nc"
    random_bound: ClassVar[float] = 0.3
    players: ClassVar[tuple[str, ...]] = players.NC_PLAYERS

    @classmethod
    def tasks(cls, source: str | None = None, *, seed: int = 0, limit: int | None = None) -> Sequence[NcTask]:
        return node_tasks(source, seed, limit, cls.name)

    @staticmethod
    def _pool_options(profile: Profile, changes: dict[str, Any]) -> PoolOptions:
        return PoolOptions.for_nodes(profile, **changes)

    def instructions(self) -> str:
        arxiv = prompts.names_arxiv(checked_graph(self.task))
        return prompts.instructions("nc", self.options, self.told_budget, listed=self.label_list, arxiv=arxiv)

    @property
    def view(self) -> GraphView:
        task = self.task
        graph = checked_graph(task)
        train = train_mask(task.graph, task.split)
        return GraphView(graph, NodeTarget(graph.index_of(task.node)), train, None, self.index, self.leaky)

    def _question(self) -> str:
        return prompts.node_question(self.view, self.options, listed=self.label_list)

    def _look(self, pool: Pool, query: str) -> Found:
        return search(self.view, pool, query, self.options)

    @property
    def gold(self) -> str:
        return self.task.gold

    def _classes(self) -> Sequence[str]:
        return checked_graph(self.task).class_names

    def _guess(self, player: str) -> str:
        return self._classes()[players.class_of(self.view, player, self._found, self.options)]


class AgentglLp(_AgentGl[LpTask]):
    """Say whether two nodes are linked. The edge between them, and those of validation and test, are in no result."""

    name: ClassVar[str] = "agentgl-lp"
    task_type: ClassVar[type[LpTask]] = LpTask
    kind: ClassVar[navigation.TaskKind] = "lp"
    random_bound: ClassVar[float] = 0.7
    players: ClassVar[tuple[str, ...]] = players.LP_PLAYERS

    @classmethod
    def tasks(cls, source: str | None = None, *, seed: int = 0, limit: int | None = None) -> Sequence[LpTask]:
        return pair_tasks(source, seed, limit, cls.name)

    @staticmethod
    def _pool_options(profile: Profile, changes: dict[str, Any]) -> PoolOptions:
        return PoolOptions.for_pairs(profile, **changes)

    def instructions(self) -> str:
        return prompts.instructions("lp", self.options, self.told_budget, listed=False, arxiv=False)

    @property
    def links(self) -> Links:
        return links_of(self.task.graph)

    @property
    def view(self) -> GraphView:
        graph = checked_graph(self.task)
        u, v = graph.index_of(self.task.u), graph.index_of(self.task.v)
        return self.links.view(u, v, self.index, leaky=self.leaky)

    def _question(self) -> str:
        return prompts.pair_question(self.view, self.options)

    def _look(self, pool: Pool, query: str) -> Found:
        return search_pair(self.view, pool, query, self.options, self.links)

    @property
    def gold(self) -> str:
        return self.task.gold

    def _classes(self) -> Sequence[str]:
        return ("yes", "no")

    def _guess(self, player: str) -> str:
        linked = players.is_linked(self.view, self.links, player, self._found, self.options)
        return "yes" if linked else "no"

    def _extra_parts(self) -> dict[str, float | None]:
        return {"probe": players.overlap(self._found)}


def _one_of(name: str, value: object, legal: Sequence[object]) -> None:
    if value not in legal or isinstance(value, bool):
        raise UserError(f"expected {name} to be one of {', '.join(map(str, legal))}, got {value!r}")
