"""The policy interface: a Policy opens one Dialogue per episode; the rollout samples from it and injects into it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agl.core import Env
from agl.dialects.dialect import Dialect
from agl.messages import Injection, Prompt
from agl.tokens import TokenLog

Finish = Literal["stop", "eos", "length"]


@dataclass(frozen=True)
class Sampling:
    """Decoding settings of a whole run. Temperature 0 is greedy."""

    temperature: float = 0.0
    top_p: float = 1.0
    max_tokens: int = 512
    """Most new tokens in one turn."""
    context_tokens: int | None = None
    """Most tokens in the whole dialogue, prompt included; None: what the model allows."""
    constrained: bool = False
    """Where the env offers a choice (of a label, say), pick one of its texts by likelihood instead of sampling freely.
    For models too small to keep to a format."""


@dataclass(frozen=True)
class Sample:
    """One stretch of generated text.

    `text` ends with the stop string when `finish` is `stop`. Tokens may reach past it when the last one does: then the
    log has them and `text` does not. `finish` is `length` when a token budget cut it.
    """

    text: str
    finish: Finish
    tokens: int


@dataclass(frozen=True)
class Play:
    """What only scripted policies may look at: the live env and how its actions are written."""

    env: Env[Any]
    dialect: Dialect
    attempt: int = 0


class Dialogue(ABC):
    """One conversation. Not safe for concurrent use; any number of dialogues of one policy may run at once."""

    may_begin_inside_thinking: bool = False
    """True when a chat template that cannot be seen may open a think block before the policy's own text."""

    @property
    def logs(self) -> Sequence[TokenLog]:
        """One token record per context (a `fresh` injection starts another); empty for chat-only APIs."""
        return ()

    @abstractmethod
    async def sample(self, stops: Sequence[str]) -> Sample:
        """Generate until a stop string, the end of the turn or a token budget.

        Raises:
            InfraError: the backend failed for a reason the policy is not answerable for.
        """

    async def choose(self, choices: Sequence[str], stops: Sequence[str]) -> Sample:
        """A turn for which the env offers a choice among these texts; a policy that cannot choose samples freely."""
        return await self.sample(stops)

    def recall(self, sample: Sample) -> None:  # noqa: B027
        """Take a sample of an earlier session as said, where each turn has a context of its own."""

    @abstractmethod
    def inject(self, injection: Injection) -> None: ...

    @abstractmethod
    def fork(self) -> Dialogue:
        """An independent dialogue that continues from here."""


class Policy(ABC):
    """A frozen model, a model in training, or a script."""

    name: str
    native_tools: bool = False
    """True when the backend takes function schemas and returns calls itself (chat APIs); settled by `prepare`."""

    async def prepare(self) -> None:  # noqa: B027
        """Get ready (probe a server, load a model). Called before every episode, so quick when done already.

        Raises:
            UserError: the backend cannot be used as configured.
            InfraError: it cannot be reached now.
        """

    @abstractmethod
    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        """Start a dialogue. `seed` is a pure function of (run seed, task, attempt)."""

    async def aclose(self) -> None:  # noqa: B027
        """Free connections and models."""
