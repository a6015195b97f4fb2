"""Models behind a URL: a vLLM server, or any API in OpenAI's form.

Two modes. `tokens`: the server also tokenises and takes token ids (vLLM does), so a dialogue is exact to the token and
carries log-probabilities. They are the server's: start it with `--logprobs-mode processed_logprobs` when
temperature or top-p are not 1. `messages`: chat turns only, functions are called natively, no token record. `auto`
asks the server once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy, deepcopy
from typing import Annotated, Any, Literal, TypeVar, get_args
from urllib.parse import urlsplit

import openai
from pydantic import BaseModel, BeforeValidator, Field, NonNegativeInt, ValidationError

from agl.dialects.tools import call_text
from agl.errors import InfraError, UserError
from agl.json_text import dumps
from agl.messages import Injection, Message, Prompt
from agl.policies.chat_template import after_turn, as_chat, check_template, probe_conversations, stand_in
from agl.policies.policy import Dialogue, Play, Policy, Sample, Sampling
from agl.policies.token_dialogue import Generated, Request, TokenDialogue, room

Mode = Literal["auto", "tokens", "messages"]
ResultT = TypeVar("ResultT")

logger = logging.getLogger(__name__)

_CONTEXT_FULL = re.compile(
    r"context.?length|maximum.{0,20}context|max_model_len|too many tokens|prompt is too long", re.I
)


class _ContextFullError(Exception):
    """The server says that prompt and budget do not fit the model."""


class _Connection:
    """What belongs to one event loop: the HTTP client, the slots, the pace."""

    def __init__(self, client: openai.AsyncOpenAI, max_concurrency: int, requests_per_minute: float | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.client = client
        self.probe: asyncio.Task[None] | None = None
        self._slots = asyncio.Semaphore(max_concurrency)
        self._interval = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._next = 0.0

    async def run(self, send: Callable[[], Awaitable[ResultT]]) -> ResultT:
        async with self._slots:
            if self._interval:
                now = self.loop.time()
                self._next = max(self._next, now) + self._interval
                await asyncio.sleep(self._next - self._interval - now)
            return await send()


class OpenAIPolicy(Policy):
    """A model behind an OpenAI-compatible URL. `prepare` settles the mode, and with it `native_tools`.

    Args:
        model: its name on the server.
        base_url: ends in `/v1`.
        api_key: None takes `$OPENAI_API_KEY`; servers without keys ignore it.
        mode: see the module.
        max_concurrency: most requests at once.
        timeout: seconds for one request.
        retries: of a request that failed for reasons that may pass (429, 5xx, connection), with growing pauses.
        requests_per_minute: pace requests evenly; None does not.
        native_tools: in `messages` mode, offer functions natively; False leaves them in the prompt as text.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        sampling: Sampling,
        *,
        api_key: str | None = None,
        mode: Mode = "auto",
        max_concurrency: int = 64,
        timeout: float = 600.0,
        retries: int = 3,
        requests_per_minute: float | None = None,
        native_tools: bool = True,
    ) -> None:
        if mode not in get_args(Mode):
            raise UserError(f"mode must be one of {', '.join(get_args(Mode))}, got {mode!r}")
        if not _is_server_url(base_url):
            raise UserError(f"expected a server URL such as http://127.0.0.1:8000/v1, got {base_url!r}; correct it")
        if max_concurrency < 1 or retries < 0 or timeout <= 0:
            raise UserError("max_concurrency and timeout must be positive, and retries 0 or more")
        if requests_per_minute is not None and requests_per_minute <= 0:
            raise UserError(f"requests_per_minute must be positive, got {requests_per_minute:g}")
        self.name = f"openai:{model}@{base_url}"
        self.model = model
        self.base_url = base_url.rstrip("/")
        self.sampling = sampling
        self.mode: Mode = mode
        self.context: int | None = None
        """Most tokens the model holds, where the server says so."""
        self._api_key = api_key or os.environ.get("OPENAI_API_KEY") or "none"
        self._max_concurrency = max_concurrency
        self._timeout = timeout
        self._retries = retries
        self._requests_per_minute = requests_per_minute
        self._offer_tools = native_tools
        self._ready = False
        self._connection: _Connection | None = None
        self._renamed: dict[str, str | None] = {}
        self._end_texts: dict[int, str] = {}

    async def prepare(self) -> None:
        """Ask the server what it can do.

        Raises:
            UserError: unknown model, refused key, or a mode the server does not offer.
            InfraError: nothing answers.
        """
        if self._ready:
            return
        connection = self._connect()
        if connection.probe is None or connection.probe.done():
            # Shared, so that a hundred waiting episodes do not knock one after the other at a dead server.
            connection.probe = connection.loop.create_task(self._settle_mode())
        await asyncio.shield(connection.probe)

    async def _settle_mode(self) -> None:
        if self.mode != "messages":
            refusal = await self._probe_tokens()
            if refusal is not None and self.mode == "tokens":
                raise UserError(refusal)
            if refusal is not None:
                logger.warning("%s: using chat messages, no token record: %s", self.name, refusal)
            self.mode = "tokens" if refusal is None else "messages"
        self.native_tools = self.mode == "messages" and self._offer_tools
        self._ready = True

    def open(self, prompt: Prompt, *, seed: int, play: Play) -> Dialogue:
        """Start a dialogue.

        Raises:
            RuntimeError: `prepare` was not awaited.
        """
        if not self._ready:
            raise RuntimeError("await prepare() before open()")
        if self.mode == "messages":
            return MessageDialogue(self, prompt, seed)
        return TokenDialogue(
            prompt, ServerEncoder(self), self.generate, self.sampling, model_context=self.context, seed=seed
        )

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.loop is asyncio.get_running_loop():
            await connection.client.close()

    def _connect(self) -> _Connection:
        if self._connection is None or self._connection.loop is not asyncio.get_running_loop():
            client = openai.AsyncOpenAI(
                base_url=self.base_url, api_key=self._api_key, timeout=self._timeout, max_retries=self._retries
            )
            self._connection = _Connection(client, self._max_concurrency, self._requests_per_minute)
        return self._connection

    async def _probe_tokens(self) -> str | None:
        """Why the server cannot work in tokens; None when it can."""
        try:
            opened = await self.render(stand_in()[:1], open_turn=True)
        except _NotOffered:
            return f"{self.base_url} has no /tokenize, which the mode tokens needs (vLLM has it)"
        renders = []
        try:
            for text, spoken, full in probe_conversations():
                renders.append(
                    (
                        await self.encode(text),
                        await self.render(spoken, within_turn=True),
                        await self.render(full, open_turn=True),
                    )
                )
            check_template(opened, renders)
        except UserError as error:
            return f"{error} (on a server: vllm serve --chat-template FILE)"
        made = await self.complete(Request(tuple(opened), (), 1, 0))
        if len(made["token_ids"] or ()) != 1 or len((made["logprobs"] or {}).get("token_logprobs") or ()) != 1:
            return f"{self.base_url} returns no token ids with log-probabilities"
        return None

    async def render(
        self, chat: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]] = (), **how: bool
    ) -> list[int]:
        """Tokens of a conversation: `open_turn` opens the next assistant turn, `within_turn` stays in the last."""
        body: dict[str, Any] = {
            "messages": chat,
            "add_generation_prompt": how.get("open_turn", False),
            "continue_final_message": how.get("within_turn", False),
        }
        if tools:
            body["tools"] = list(tools)
        return await self._tokenize(body)

    async def encode(self, text: str) -> list[int]:
        """Tokens of `text` alone, nothing added."""
        return await self._tokenize({"prompt": text, "add_special_tokens": False}) if text else []

    async def _tokenize(self, body: dict[str, Any]) -> list[int]:
        answer = await self._post("tokenize", body)
        if not isinstance(answer, dict) or not isinstance(answer.get("tokens"), list):
            raise _NotOffered
        if answer.get("max_model_len"):
            self.context = int(answer["max_model_len"])
        return [int(token) for token in answer["tokens"]]

    async def _post(self, route: str, body: dict[str, Any]) -> Any:
        """A route of vLLM that stands beside `/v1`."""
        url = f"{self.base_url.removesuffix('/v1')}/{route}"
        return await self.request(
            lambda client: client.post(url, cast_to=object, body={"model": self.model, **body}), optional=True
        )

    async def complete(self, request: Request) -> dict[str, Any]:
        """One raw completion of a token-id prompt."""
        extra: dict[str, Any] = {
            "include_stop_str_in_output": True,
            "return_token_ids": True,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
        }
        if request.choices:
            extra["structured_outputs"] = {"choice": list(request.choices)}
        answer = await self.request(
            lambda client: client.completions.create(
                model=self.model,
                prompt=list(request.ids),
                max_tokens=request.max_tokens,
                temperature=self.sampling.temperature,
                top_p=self.sampling.top_p,
                seed=request.seed,
                stop=list(request.stops) or None,
                logprobs=0,
                extra_body=extra,
            )
        )
        choice = _only_choice(answer, self.base_url)
        return {"token_ids": None, "stop_reason": None, "logprobs": None, **choice.model_dump()}

    async def generate(self, request: Request) -> Generated:
        """One stretch in tokens."""
        try:
            made = await self.complete(request)
        except _ContextFullError:
            return Generated([], [], "length", "")
        ids, logprobs = made["token_ids"], (made["logprobs"] or {}).get("token_logprobs")
        if not isinstance(ids, list) or not isinstance(logprobs, list) or len(ids) != len(logprobs):
            raise InfraError(f"{self.base_url} returned a completion without its token ids and log-probabilities")
        text = str(made["text"])
        if made["finish_reason"] == "length":
            return Generated(ids, logprobs, "length", text)
        if made["finish_reason"] != "stop":
            raise InfraError(f"{self.base_url} ended a request with {made['finish_reason']!r}")
        if isinstance(made["stop_reason"], str):
            return Generated(ids, logprobs, "stop", text)
        return Generated(ids, logprobs, "eos", text.removesuffix(await self._end_text(ids[-1])) if ids else text)

    async def _end_text(self, token: int) -> str:
        if token not in self._end_texts:
            answer = await self._post("detokenize", {"tokens": [token]})
            self._end_texts[token] = str(answer.get("prompt", "")) if isinstance(answer, dict) else ""
        return self._end_texts[token]

    async def chat(
        self, messages: list[dict[str, Any]], tools: Sequence[Any], budget: int, seed: int, stops: Sequence[str]
    ) -> Any:
        """One raw chat completion. A setting this API does not know is dropped, once and with a warning."""
        settings: dict[str, Any] = {"max_tokens": budget, "temperature": self.sampling.temperature}
        if self.sampling.top_p != 1.0:
            settings["top_p"] = self.sampling.top_p
        if self.sampling.temperature > 0:
            settings["seed"] = seed
        if stops:
            settings["stop"] = list(stops)
        if tools:
            settings["tools"] = list(tools)
        while True:
            named = {self._renamed.get(name, name): value for name, value in settings.items()}
            known = {name: value for name, value in named.items() if name is not None}
            try:
                return await self.request(
                    lambda client, known=known: client.chat.completions.create(  # type: ignore[misc]
                        model=self.model, messages=messages, **known
                    )
                )
            except UserError as error:
                if self._adapt(known, str(error.__cause__)):
                    continue
                if tools and "tool" in str(error):
                    remedy = "start it with tool calling, or set native_tools to false to describe functions as text"
                    raise UserError(f"{error}; {remedy}") from error
                raise

    def _adapt(self, sent: Mapping[str, Any], refusal: str) -> bool:
        """Learn from a refused setting; True when it is worth asking again."""
        if "max_tokens" in sent and "max_completion_tokens" in refusal:
            self._renamed["max_tokens"] = "max_completion_tokens"
            return True
        for name in ("seed", "stop"):
            if name in sent and re.search(rf"['\"`]{name}['\"`]", refusal):
                logger.warning("%s does not take %s; going on without it", self.name, name)
                self._renamed[name] = None
                return True
        return False

    async def request(
        self, send: Callable[[openai.AsyncOpenAI], Awaitable[ResultT]], *, optional: bool = False
    ) -> ResultT:
        """Send one request; the one place where failures are told apart.

        Args:
            optional: the route may be missing.

        Raises:
            UserError: the server refuses what it was asked; asking again would not help.
            InfraError: it failed or is not there.
        """
        connection = self._connect()
        try:
            return await connection.run(lambda: send(connection.client))
        except openai.APITimeoutError as error:
            raise InfraError(f"{self.base_url} did not answer within {self._timeout:g} s") from error
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            reason = str(cause) or type(cause).__name__
            raise InfraError(
                f"no server answers at {self.base_url} ({reason}); start it, or correct the URL"
            ) from error
        except openai.APIStatusError as error:
            if optional and error.status_code in (404, 405, 501) and not _names_model(error, self.model):
                raise _NotOffered from error
            raise await self._verdict(error) from error
        except (openai.OpenAIError, ValueError) as error:  # ValueError: a body that is no JSON or no UTF-8
            raise InfraError(f"{self.base_url} sent no readable answer: {' '.join(str(error).split())}") from error

    async def _verdict(self, error: openai.APIStatusError) -> Exception:
        said = _said(error)
        status = error.status_code
        if status in (400, 413, 422) and (error.code == "context_length_exceeded" or _CONTEXT_FULL.search(said)):
            return _ContextFullError(said)
        if status in (401, 403):
            return UserError(f"{self.base_url} refused the key ({status}: {said}); set OPENAI_API_KEY")
        if status == 404:
            return UserError(await self._unknown_model(said))
        if status == 429 and error.code == "insufficient_quota":
            return UserError(f"{self.base_url} says that the quota of this key is used up: {said}")
        if status == 429:
            return InfraError(
                f"{self.base_url} still refused after {self._retries} retries because of too many requests; "
                "lower the concurrency or set requests_per_minute"
            )
        if status in (408, 409) or status >= 500:
            return InfraError(f"{self.base_url} failed with status {status}: {said}")
        if error.code == "content_filter":
            return InfraError(f"the content filter of {self.base_url} refused a request: {said}")
        return UserError(f"{self.base_url} refused a request ({status}): {said}")

    async def _unknown_model(self, said: str) -> str:
        try:
            listed = await self._connect().client.models.list()
            names = sorted(model.id for model in listed.data)
        except (openai.OpenAIError, AttributeError, TypeError):
            return f"{self.base_url} answers 404 ({said}); expected the URL of an OpenAI-compatible API, ending in /v1"
        shown = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        return f"{self.base_url} does not know the model {self.model!r}; it has: {shown or 'none'}"


class _NotOffered(Exception):
    """The server lacks a route that only vLLM has."""


def _said(error: openai.APIStatusError) -> str:
    body = error.body
    if isinstance(body, dict):
        inner = body.get("error", body)
        text = inner.get("message") or inner.get("detail") if isinstance(inner, dict) else inner
        if text:
            return " ".join(str(text).split())[:300]
    return " ".join(str(error.message).split())[:300]


def _names_model(error: openai.APIStatusError, model: str) -> bool:
    return model in _said(error)


def _is_server_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not match, a port that is none
        return False


def _letters(value: Any) -> Any:
    """Half a surrogate pair is no letter and cannot be sent back; U+FFFD stands for it."""
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


Letters = Annotated[str, BeforeValidator(_letters)]


class _Function(BaseModel, extra="allow"):
    name: Annotated[Letters, BeforeValidator(lambda given: given or "")] = ""
    arguments: Annotated[Letters, BeforeValidator(lambda given: given if isinstance(given, str) else dumps(given))] = ""


class _Call(BaseModel, extra="allow"):
    id: Annotated[str, BeforeValidator(lambda given: given or "call")] = "call"
    type: str = "function"
    function: _Function


class _Message(BaseModel):
    content: Letters | None = None
    tool_calls: list[_Call] | None = None
    reasoning_content: Letters | None = None
    reasoning: Letters | None = None


class _Choice(BaseModel):
    finish_reason: str | None = None
    message: _Message


class _Usage(BaseModel):
    completion_tokens: NonNegativeInt | None = None
    total_tokens: NonNegativeInt | None = None


class _Chat(BaseModel):
    """What is read of a chat completion; the rest may be as it likes."""

    choices: list[_Choice] = Field(min_length=1)
    usage: _Usage | None = None


def _chat(answer: Any, base_url: str) -> _Chat:
    try:
        fields = answer.to_dict(mode="python", warnings=False) if isinstance(answer, openai.BaseModel) else answer
        return _Chat.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the answer"
        raise InfraError(
            f"{base_url} answered without a completion ({place}: {first['msg']}); is it an OpenAI-compatible API?"
        ) from None


def _only_choice(answer: Any, base_url: str) -> Any:
    choices = getattr(answer, "choices", None)
    if not choices or not hasattr(choices[0] if isinstance(choices, list) else None, "finish_reason"):
        raise InfraError(f"{base_url} answered without a completion; is it an OpenAI-compatible API?")
    return choices[0]


class ServerEncoder:
    """The tokenizer of a server."""

    def __init__(self, policy: OpenAIPolicy) -> None:
        self._policy = policy

    async def first(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        return await self._policy.render(as_chat(messages), tools, open_turn=True)

    async def turn(self, messages: Sequence[Message], closed_by: int | None) -> list[int]:
        spoken = await self._policy.render(stand_in(), within_turn=True)
        full = await self._policy.render([*stand_in(), *as_chat(messages)], open_turn=True)
        return after_turn(spoken, full, closed_by)

    async def encode(self, text: str) -> list[int]:
        return await self._policy.encode(text)


class MessageDialogue(Dialogue):
    """A conversation in chat messages. What would go on in the same assistant turn becomes a user message."""

    may_begin_inside_thinking = True

    def __init__(self, policy: OpenAIPolicy, prompt: Prompt, seed: int) -> None:
        self._policy = policy
        self._history = as_chat(prompt.messages)
        self._tools = prompt.tools
        self._seed = seed
        self._rng = random.Random(seed)
        self._forks = 0
        self._used = 0
        self._calls: list[str] = []

    async def sample(self, stops: Sequence[str]) -> Sample:
        budget = room(self._policy.sampling, self._policy.context, self._used)
        if budget == 0:
            return Sample(text="", finish="length", tokens=0)
        try:
            answer = await self._policy.chat(self._history, self._tools, budget, self._rng.getrandbits(31), stops)
        except _ContextFullError:
            return Sample(text="", finish="length", tokens=0)
        read = _chat(answer, self._policy.base_url)
        choice, usage = read.choices[0], read.usage
        if choice.finish_reason == "content_filter":
            raise InfraError(f"the content filter of {self._policy.base_url} cut an answer")
        self._used = (usage.total_tokens if usage else None) or 0
        tokens = (usage.completion_tokens if usage else None) or 0
        message = choice.message
        calls = message.tool_calls or []
        said = message.content or ""
        finish: Literal["stop", "eos", "length"] = "length" if choice.finish_reason == "length" else "eos"
        if not calls:
            said, stopped = close_tag(said, stops, cut=finish == "length")
            finish = "stop" if stopped else finish
        self._history.append(
            {"role": "assistant", "content": said or None} if calls else {"role": "assistant", "content": said}
        )
        if calls:
            self._history[-1]["tool_calls"] = [call.model_dump(exclude_none=True) for call in calls]
        self._calls = [call.id for call in calls]
        reasoning = message.reasoning_content or message.reasoning
        text = f"<think>{reasoning}</think>\n{said}" if reasoning else said
        text += "".join(call_text(call.function.name, call.function.arguments) for call in calls)
        return Sample(text=text, finish=finish, tokens=tokens)

    async def choose(self, choices: Sequence[str], stops: Sequence[str]) -> Sample:
        """See `Dialogue.choose`.

        Raises:
            UserError: `Sampling.constrained` asks for what a chat API does not offer.
        """
        if self._policy.sampling.constrained:
            raise UserError(
                f"expected a vLLM server for constrained choices, got a chat API at {self._policy.base_url}; "
                "set sampling.constrained to false"
            )
        return await self.sample(stops)

    def inject(self, injection: Injection) -> None:
        if injection.kind == "fresh":
            self._history, self._calls, self._used = as_chat(injection.messages), [], 0
            return
        added = injection.messages or (Message(role="user", content=injection.text.strip()),)
        for message in added:
            if message.role == "tool" and self._calls:
                call = message.tool_call_id or self._calls[0]
                self._calls = [other for other in self._calls if other != call]
                self._history.append({"role": "tool", "tool_call_id": call, "content": message.content})
            elif message.role == "tool":
                # The model wrote its call as text: there is no native call that a tool message could answer.
                self._history.append({"role": "user", "content": message.content})
            else:
                self._history.append(message.model_dump(exclude_none=True))
        if any(message.role == "tool" for message in added):
            for call in self._calls:
                self._history.append({"role": "tool", "tool_call_id": call, "content": "Not executed."})
            self._calls = []

    def fork(self) -> MessageDialogue:
        """Continues from the same messages with its own random numbers."""
        self._forks += 1
        twin = copy(self)
        twin._seed = random.Random(f"{self._seed}/{len(self._history)}/{self._forks}").getrandbits(63)
        twin._rng = random.Random(twin._seed)
        twin._forks = 0
        twin._history = deepcopy(self._history)
        twin._calls = list(self._calls)
        return twin


def close_tag(text: str, stops: Sequence[str], *, cut: bool = False) -> tuple[str, bool]:
    """Give back the stop string that chat APIs leave out, and cut what follows the first one.

    Args:
        cut: a token limit ended the text, so nothing was left out.

    Returns:
        The text, and whether it ends in a stop string.
    """
    ends = [place + len(stop) for stop in stops if (place := text.find(stop)) >= 0]
    if ends:
        return text[: min(ends)], True
    openings = {stop: text.rfind(f"<{stop[2:]}") for stop in stops if stop.startswith("</") and stop.endswith(">")}
    latest = max(openings, key=lambda stop: openings[stop], default=None)
    if cut or latest is None or openings[latest] < 0:
        return text, False
    return text + latest, True
