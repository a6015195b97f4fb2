"""The dialogue of every policy that sees tokens: one TokenLog per context, appended to and never re-encoded."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol

from agl.messages import Injection, Message, Prompt
from agl.policies.chat_template import ChatTemplate
from agl.policies.policy import Dialogue, Finish, Sample, Sampling
from agl.tokens import TokenLog


@dataclass(frozen=True)
class Request:
    """One stretch to generate after `ids`. `seed` is fresh for each stretch; `max_tokens` is at least 1.

    `choices`: the stretch is to be one of these texts.
    """

    ids: tuple[int, ...]
    stops: tuple[str, ...]
    max_tokens: int
    seed: int
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Generated:
    """What came of a request.

    `ids` are exactly the sampled tokens, the one that ends the turn included, with a log-probability each. `text`
    leaves that one out, and what the last token has beyond a stop string.
    """

    ids: list[int]
    logprobs: list[float] | None
    finish: Finish
    text: str


def room(sampling: Sampling, model_context: int | None, used: int) -> int:
    """How many tokens may be sampled when `used` stand in the context; 0 when it is full."""
    limits = [limit for limit in (sampling.context_tokens, model_context) if limit is not None]
    return max(0, min([sampling.max_tokens, *(limit - used for limit in limits)]))


class Encoder(Protocol):
    """Where text becomes tokens: a tokenizer in this process, or the one of a server."""

    async def first(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """A whole conversation with the next assistant turn opened."""

    async def turn(self, messages: Sequence[Message], closed_by: int | None) -> list[int]:
        """What to append after an assistant turn; see `agl.policies.chat_template.after_turn`."""

    async def encode(self, text: str) -> list[int]:
        """Tokens of `text` alone, nothing added."""


class LocalEncoder:
    """A tokenizer in this process."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template

    async def first(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        return self._template.first(messages, tools)

    async def turn(self, messages: Sequence[Message], closed_by: int | None) -> list[int]:
        return self._template.turn(messages, closed_by)

    async def encode(self, text: str) -> list[int]:
        return self._template.encode(text)


class TokenDialogue(Dialogue):
    """A conversation in tokens. What is injected is encoded, and stands in `logs`, once the next sample is asked for.

    Args:
        generate: runs one request.
        model_context: most tokens the model can hold; None when unknown.
    """

    def __init__(
        self,
        prompt: Prompt,
        encoder: Encoder,
        generate: Callable[[Request], Awaitable[Generated]],
        sampling: Sampling,
        *,
        model_context: int | None,
        seed: int,
    ) -> None:
        self._encoder = encoder
        self._generate = generate
        self._sampling = sampling
        self._model_context = model_context
        self._tools = prompt.tools
        self._seed = seed
        self._rng = random.Random(seed)
        self._forks = 0
        self._closed_by: int | None = None
        self._logs: list[TokenLog] = []
        self._pending = [Injection(kind="fresh", messages=prompt.messages)]

    @property
    def logs(self) -> Sequence[TokenLog]:
        return self._logs

    async def sample(self, stops: Sequence[str]) -> Sample:
        """See `Dialogue.sample`.

        Raises:
            UserError: the chat template cannot render what was injected.
        """
        return await self._sample(stops, ())

    async def choose(self, choices: Sequence[str], stops: Sequence[str]) -> Sample:
        """One of `choices` by likelihood, where `Sampling.constrained` asks for it."""
        return await self._sample(stops, tuple(choices) if self._sampling.constrained else ())

    def recall(self, sample: Sample) -> None:
        """See `Dialogue.recall`; the random numbers of later turns stay those of an uninterrupted run."""
        self._rng.getrandbits(31)

    async def _sample(self, stops: Sequence[str], choices: tuple[str, ...]) -> Sample:
        while self._pending:
            await self._append(self._pending[0])
            self._pending.pop(0)
        log = self._logs[-1]
        budget = room(self._sampling, self._model_context, len(log))
        if budget == 0:
            return Sample(text="", finish="length", tokens=0)
        request = Request(tuple(log.ids), tuple(stops), budget, self._rng.getrandbits(31), choices)
        made = await self._generate(request)
        log.append("sampled", made.ids, made.logprobs)
        self._closed_by = made.ids[-1] if made.finish == "eos" and made.ids else None
        return Sample(text=made.text, finish=made.finish, tokens=len(made.ids))

    async def _append(self, injection: Injection) -> None:
        if injection.kind == "fresh":
            log = TokenLog()
            log.append("prompt", await self._encoder.first(injection.messages, self._tools))
            self._logs.append(log)
        elif injection.kind == "turn":
            self._logs[-1].append("injected", await self._encoder.turn(injection.messages, self._closed_by))
        else:
            self._logs[-1].append("injected", await self._encoder.encode(injection.text))
        self._closed_by = None

    def inject(self, injection: Injection) -> None:
        self._pending.append(injection)

    def fork(self) -> TokenDialogue:
        """Continues from the same tokens with its own random numbers, so that branches differ."""
        self._forks += 1
        used = sum(len(log) for log in self._logs)
        twin = copy(self)
        twin._seed = random.Random(f"{self._seed}/{used}/{self._forks}").getrandbits(63)
        twin._rng = random.Random(twin._seed)
        twin._forks = 0
        twin._logs = [log.fork() for log in self._logs]
        twin._pending = list(self._pending)
        return twin
