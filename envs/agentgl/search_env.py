"""What AgentGL's two environments share (arXiv 2604.05846): search a graph within a budget, then answer."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from pathlib import PurePath
from typing import Any, ClassVar, Literal, get_args

from agl.core import Action, Env, Malformed, Observation, Score, Step, StopReason
from agl.errors import UserError
from agl.graphs.index import Index
from agl.graphs.view import GraphView
from envs.agentgl import prompts
from envs.agentgl.actions import Answer, Search
from envs.agentgl.pools import Found, Pool, PoolOptions, Profile, read_pool
from envs.agentgl.speech import Speech
from envs.agentgl.tasks import GraphTaskT, checked_graph, index_of
from rewards import navigation

BUDGETS: dict[Profile, tuple[int, int]] = {"paper": (4, 4), "code": (6, 5)}
"""Searches that are allowed, and that the prompt speaks of: in the released code the two differ."""
MOST_REFUSED = 3
"""So many refusals in a row (malformed, or beyond the budget) end the episode."""


@lru_cache(maxsize=8)
def _first_targets(env: type[Env[Any]], source: str, count: int) -> Sequence[Any]:
    """The first targets of a part, drawn once and not for every episode whose prompt shows some."""
    return env.tasks(source, seed=0, limit=count)


class SearchEnv(Env[GraphTaskT]):
    """An episode about one target; what it is, and how pools are searched around it, a subclass says. Options:

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

    _fresh: Pool | None
    """The pool that was searched in this turn."""

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
        return {"graph": PurePath(task.graph).name}

    @classmethod
    def worked_examples(cls, task: GraphTaskT, count: int) -> Sequence[GraphTaskT]:
        """Training targets of the same graph and split, the same for all its tasks (one moves up for itself)."""
        shown: Sequence[GraphTaskT] = _first_targets(cls, task.train_source, count + 1) if count else ()
        return [example for example in shown if example.id != task.id][:count]

    @property
    def index(self) -> Index:
        return index_of(self.task.graph, self.embedding)

    def begin(self, task: GraphTaskT) -> Observation:
        checked_graph(task)
        self._speech = Speech()
        self._found: list[Found] = []
        self._used = self._errors = self._malformed = self._excess = self._streak = 0
        self._spent, self._fresh = False, None
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
        self._spent = True
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
        notes = [prompts.reflect(self._fresh)] if self._fresh is not None and self.rtt else []
        if self._spent and self._used == self.budget:
            notes.append(prompts.last(self.budget))
        self._spent, self._fresh = False, None
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
        answer = self._answer
        known = [] if answer is None else [name for name in self._classes() if navigation.is_correct(answer, name)]
        outcome = "none" if answer is None else "unknown" if not known else "right" if right else "wrong"
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
        labels = {"outcome": outcome, "gold": self.gold, "answer": known[0] if known else outcome}
        labels |= {"predicted": known[0]} if known else {}
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
        return prompts.plain(view.text(view.targets[0]), 60).strip()

    def choices(self) -> Sequence[Action]:
        """The answers, once nothing else is left to do."""
        if self._used < self.budget:
            return ()
        answers = [Answer(text=name) for name in self._classes()]
        return [answer.placed(False) for answer in answers] if self._speech.in_think else answers

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


def _one_of(name: str, value: object, legal: Sequence[object]) -> None:
    if value not in legal or isinstance(value, bool):
        raise UserError(f"expected {name} to be one of {', '.join(map(str, legal))}, got {value!r}")
