"""The nouns every room shares: Task, Action, Observation, Step, Score, Outcome and Env.

One episode: a frozen `Task` resets an `Env`; the env answers each `Action` with a `Step`; when it is over,
`Env.score` turns what happened into named numbers. Nothing here knows about models or text protocols.
"""

from __future__ import annotations

import pickle
import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError


class Frozen(BaseModel):
    """Immutable, JSON-serialisable data that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Task(Frozen):
    """What one episode is about, the hidden truth included. A pure function of its split, seed and index."""

    id: str
    env: str
    seed: int = 0


TaskT = TypeVar("TaskT", bound=Task)


class Malformed(Frozen):
    """Policy text that is no action: data for the env, never an exception and never a silent default."""

    reason: str = Field(description="Stable code, such as `not_json`, `unknown_argument` or `no_action`.")
    message: str = Field(description="One sentence the model can act on.")
    text: str = Field(default="", description="The offending text, cut to 500 characters.")


class Action(BaseModel):
    """Base of everything an agent can do. The docstring and field descriptions are what a model reads."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    tag: ClassVar[str]
    """Element name under the tags dialect: `<tag>...</tag>`."""

    @classmethod
    def name(cls) -> str:
        """Function name under native tool calling: the class name in snake case."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    @classmethod
    def read(cls, arguments: object, text: str = "") -> Self | Malformed:
        """Build the action from decoded JSON `arguments`; `text` is quoted in the Malformed that comes otherwise."""
        if not isinstance(arguments, dict):
            got = type(arguments).__name__
            return Malformed(reason="bad_type", message=f"{cls.name()} takes a JSON object, got {got}", text=text[:500])
        try:
            return cls.model_validate(arguments)
        except ValidationError as error:
            return _malformed(cls, error, text)


_REASONS = {
    "extra_forbidden": "unknown_argument",
    "missing": "missing_argument",
    "literal_error": "bad_enum",
    "enum": "bad_enum",
}


def _malformed(action: type[Action], error: ValidationError, text: str) -> Malformed:
    first = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    reason = _REASONS.get(first["type"], "bad_type")
    legal = ", ".join(action.model_fields)
    said = {
        "unknown_argument": f"unknown argument {place!r} for {action.name()}; it takes: {legal}",
        "missing_argument": f"{action.name()} needs the argument {place!r}; it takes: {legal}",
    }.get(reason, f"{action.name()}.{place}: {first['msg']}")
    return Malformed(reason=reason, message=said, text=text[:500])


class Answer(Action):
    """Give the final answer. This ends the episode."""

    tag: ClassVar[str] = "answer"
    text: str = Field(description="The final answer, its value in \\boxed{...} where the question asks for it.")


class Observation(Frozen):
    """What the env shows in reply. `is_error` marks a mistake the policy can repair."""

    text: str
    is_error: bool = False


class StopReason(StrEnum):
    """Why an episode ended; set once, by the loop or the env."""

    ANSWER = "answer"
    MAX_TURNS = "max_turns"
    MAX_TOKENS = "max_tokens"
    INVALID = "invalid"
    TIMEOUT = "timeout"
    ERROR = "error"


class Step(Frozen):
    """Reply to one action. `terminated`: the task is over; `truncated`: a budget of the env ended it."""

    observation: Observation
    terminated: bool = False
    truncated: bool = False
    stop: StopReason | None = None
    """Why, when it ended here; None: it follows from the flags."""

    @property
    def ended(self) -> StopReason | None:
        """Why the episode ended with this step; None when it goes on."""
        if not (self.terminated or self.truncated):
            return None
        return self.stop or (StopReason.ANSWER if self.terminated else StopReason.MAX_TURNS)


class Post(Frozen):
    """What an episode lets the other episodes of its run know at the end of a round."""

    round: int
    notes: dict[str, Any] = Field(default_factory=dict, description="JSON, in a form its env defines.")


class OutcomeKind(StrEnum):
    """Who is answerable for how the episode ended."""

    OK = "ok"
    POLICY_FAILURE = "policy_failure"
    INFRA_FAILURE = "infra_failure"

    @classmethod
    def of(cls, stop: StopReason) -> OutcomeKind:
        """Of an episode whose machinery worked."""
        return cls.OK if stop is StopReason.ANSWER else cls.POLICY_FAILURE


class Outcome(Frozen):
    """`ok`: ended with an answer, right or wrong; `policy_failure`: scored and trained on, but no proper end;
    `infra_failure`: no sample at all. `error` is the first infrastructure error, kept even when a retry succeeded."""

    kind: OutcomeKind
    stop: StopReason
    error: str | None = None
    retries: int = 0


class Score(Frozen):
    """What an episode earned.

    `total` is the headline score in [0, 1]: the oracle gets 1, silence 0. `reward` is what training maximises,
    on the scale of the published system. `parts` are the named numbers behind both; None means not applicable.
    """

    total: float = Field(ge=0.0, le=1.0, allow_inf_nan=False)
    reward: float = Field(allow_inf_nan=False)
    parts: Mapping[str, FiniteFloat | None] = Field(default_factory=dict)
    labels: Mapping[str, str] = Field(default_factory=dict, description="Categorical findings, e.g. an error class.")


class Env(ABC, Generic[TaskT]):
    """One episode at a time, synchronous and deterministic: equal tasks and actions give equal bytes.

    A subclass implements `tasks`, `instructions`, `begin`, `act`, `score`, `oracle` and `random_action`. `begin` must
    rebuild all state. Mistakes of the policy are observations; programming errors raise.
    """

    name: ClassVar[str]
    task_type: ClassVar[type[Task]]
    actions: ClassVar[tuple[type[Action], ...]]
    dialect: ClassVar[str] = "tags"
    """Name of the dialect the published system used."""
    metrics: ClassVar[tuple[str, ...]] = ()
    """Names in `Score.parts` that tables and summaries show beside `total` and `reward`."""
    random_bound: ClassVar[float] = 0.5
    """The mean `Score.total` of random play stays at or below this."""
    aggregates: ClassVar[Mapping[str, Callable[[Sequence[Score]], float | None]]] = {}
    """Figures over the scores of a run that are no means, such as an AUC; None: it does not apply."""
    players: ClassVar[tuple[str, ...]] = ()
    """Names of this env's own scripted players, beside oracle, random and silent: rules that need no model."""
    thinking: bool = True
    """False where the options of this instance ask for an action without reasoning before it."""

    _task: TaskT | None = None
    _over: bool = False

    @classmethod
    @abstractmethod
    def tasks(cls, source: str | None = None, *, seed: int = 0, limit: int | None = None) -> Sequence[TaskT]:
        """Tasks of a generated split (`source` is its name; None a small default) or of a file or folder.

        Raises:
            DataError: `source` is neither a split of this env nor readable data.
        """

    @classmethod
    def facets(cls, task: TaskT) -> dict[str, str]:
        """Column name -> value by which tables group this task. First come the main rows."""
        return {}

    @classmethod
    def cluster(cls, task: TaskT) -> str:
        """Tasks that share their randomness (views of one graph) share a cluster; intervals respect it."""
        return task.id

    @abstractmethod
    def instructions(self) -> str:
        """What the system prompt says before the dialect explains how to write actions."""

    @classmethod
    def worked_examples(cls, task: TaskT, count: int) -> Sequence[TaskT]:
        """Tasks to demonstrate in the prompt of `task`; outside every split, never the task itself."""
        return ()

    @abstractmethod
    def begin(self, task: TaskT) -> Observation: ...

    @abstractmethod
    def act(self, action: Action | Malformed) -> Step: ...

    @abstractmethod
    def score(self) -> Score:
        """Pure; callable at any time after `reset`."""

    @abstractmethod
    def oracle(self) -> Action:
        """The right next action, from the hidden truth."""

    def oracle_thought(self) -> str:
        """A short reasoning text to precede `oracle()` in demonstrations; may not reveal hidden truth."""
        return ""

    @abstractmethod
    def random_action(self, rng: random.Random) -> Action:
        """A legal action drawn at random: the baseline that tables print."""

    def player_actions(self, player: str) -> Sequence[Action]:
        """The next turn of one of `players`; a pure function of what has happened in this episode."""
        raise NotImplementedError(f"{self.name} names the player {player!r} and does not play it")

    def choices(self) -> Sequence[Action]:
        """Where the next turn is a choice among few actions (a label), these; else nothing."""
        return ()

    def end_turn(self) -> Step | None:
        """Close a turn; called once all actions of one turn were applied and the episode goes on.

        The observation of the step opens the next turn. None: the replies to the actions do.
        """
        return None

    @property
    def exchanges(self) -> bool:
        """True where the episodes of one run know of each other; then `post` and `receive` are called between turns."""
        return False

    def post(self) -> Post | None:
        """What the turn that was just played tells the other episodes of this run; None: nothing to exchange now.

        Where it is a Post, the rollout waits until every other episode has posted for this round (or has ended), hands
        all of them to `receive`, and only then calls `end_turn`. A caller that plays one episode alone does neither.
        """
        return None

    def receive(self, posts: Mapping[str, Post]) -> None:
        """Take notice of the latest posts of the run up to this round, by task id; this episode's own among them."""

    def reset(self, task: TaskT) -> Observation:
        """Start an episode; a pure function of `task`.

        Raises:
            TypeError: the task belongs to another env.
        """
        if not isinstance(task, self.task_type):
            raise TypeError(f"{self.name} takes {self.task_type.__name__}, got {type(task).__name__}")
        self._task, self._over = task, False
        return self.begin(task)

    def close_turn(self) -> Step | None:
        """`end_turn`, with its end taken note of; nothing where the episode is over."""
        if self._over:
            return None
        step = self.end_turn()
        self._over = step is not None and (step.terminated or step.truncated)
        return step

    def step(self, action: Action | Malformed) -> Step:
        """Apply one action. After the end it changes nothing and says so.

        Raises:
            RuntimeError: called before `reset`.
        """
        if self._task is None:
            raise RuntimeError("call reset(task) before step(action)")
        if self._over:
            note = Observation(text="Error: the episode is over; nothing was done.", is_error=True)
            return Step(observation=note, terminated=True)
        step = self.act(action)
        self._over = step.terminated or step.truncated
        return step

    @property
    def task(self) -> TaskT:
        if self._task is None:
            raise RuntimeError("call reset(task) first")
        return self._task

    @property
    def is_over(self) -> bool:
        return self._over

    def snapshot(self) -> bytes:
        """All state of the running episode, for branching rollouts."""
        return pickle.dumps(self.__dict__)

    def restore(self, state: bytes) -> None:
        """Continue from a `snapshot` of an env of the same class and options. Only restore bytes you made yourself."""
        self.__dict__.clear()
        self.__dict__.update(pickle.loads(state))

    def close(self) -> None:
        """Free what `begin` opened; called once per episode."""

    def legal_actions(self) -> tuple[type[Action], ...]:
        """What the agent can do under the options of this instance: all of `actions`, or fewer."""
        return self.actions

    def json_schemas(self) -> list[dict[str, Any]]:
        """The legal actions as OpenAI-style function schemas."""
        return json_schemas(self.legal_actions())


def json_schemas(actions: Sequence[type[Action]]) -> list[dict[str, Any]]:
    """`actions` as OpenAI-style function schemas."""
    return [
        {
            "type": "function",
            "function": {
                "name": action.name(),
                "description": " ".join((action.__doc__ or "").split()),
                "parameters": _schema(action),
            },
        }
        for action in actions
    ]


def _schema(action: type[Action]) -> dict[str, Any]:
    schema = action.model_json_schema()
    schema.pop("title", None)
    schema.pop("description", None)
    for field in schema.get("properties", {}).values():
        field.pop("title", None)
    return schema
