"""OpenAI-compatible servers: chat messages, native tools, and who is at fault when a request fails."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agl.core import Malformed, OutcomeKind, StopReason
from agl.dialects import dialect_for
from agl.errors import InfraError, UserError
from agl.messages import Injection, Message, Prompt
from agl.policies.build import build_policy
from agl.policies.openai_api import OpenAIPolicy, close_tag
from agl.policies.policy import Dialogue, Sampling
from agl.policies.scripted import Replay
from agl.rollout import Limits, rollout
from agl.trace import EpisodeWriter
from tests.toy_env import ToyEnv

PLAY: Any = None
Answer = tuple[int, Any]


@dataclass
class ChatServer:
    """A small chat API on loopback. `reply` makes status and JSON body out of each request body."""

    url: str = ""
    reply: Callable[[dict[str, Any]], Answer] = lambda body: (200, chat("hello"))
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    running: int = 0
    most: int = 0


def chat(text: str | None, finish: str = "stop", **message: Any) -> dict[str, Any]:
    said = {"role": "assistant", "content": text, **message}
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "small",
        "choices": [{"index": 0, "message": said, "finish_reason": finish}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


def failure(message: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "error", "code": code}}


def call(name: str, arguments: str, call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.fixture
def server() -> Iterator[ChatServer]:
    state = ChatServer()
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
            pass

        def do_GET(self) -> None:
            self.answer(
                200,
                {"object": "list", "data": [{"id": "small", "object": "model"}, {"id": "large", "object": "model"}]},
            )

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path != "/v1/chat/completions":
                self.answer(404, {"detail": "Not Found"})
                return
            with lock:
                state.requests.append(body)
                state.keys.append(self.headers.get("Authorization", ""))
                state.running += 1
                state.most = max(state.most, state.running)
            try:
                status, answer = state.reply(body)
            finally:
                with lock:
                    state.running -= 1
            self.answer(status, answer)

        def answer(self, status: int, answer: Any) -> None:
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html" if data.startswith(b"<") else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{http.server_port}/v1"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield state
    http.shutdown()
    http.server_close()
    thread.join()


def policy(server: ChatServer, sampling: Sampling | None = None, **options: Any) -> OpenAIPolicy:
    return OpenAIPolicy("small", server.url, sampling or Sampling(max_tokens=20), **{"retries": 0, **options})


def ask(text: str = "hi", tools: tuple[dict[str, Any], ...] = ()) -> Prompt:
    return Prompt(messages=(Message(role="user", content=text),), tools=tools)


async def opened(made: OpenAIPolicy, prompt: Prompt | None = None) -> Dialogue:
    await made.prepare()
    return made.open(prompt or ask(), seed=1, play=PLAY)


async def test_a_server_without_tokenizer_gets_messages(server: ChatServer) -> None:
    made = policy(server)
    dialogue = await opened(made)
    sample = await dialogue.sample(["</answer>"])
    assert (made.mode, made.native_tools) == ("messages", True)
    assert (sample.text, sample.finish, sample.tokens) == ("hello", "eos", 5)
    assert dialogue.logs == ()
    assert server.requests[0]["stop"] == ["</answer>"]
    assert server.requests[0]["max_tokens"] == 20
    assert server.requests[0]["temperature"] == 0
    await made.aclose()


async def test_the_mode_tokens_is_refused_where_it_is_not_offered(server: ChatServer) -> None:
    with pytest.raises(UserError, match="/tokenize"):
        await policy(server, mode="tokens").prepare()


@pytest.mark.parametrize(
    ("text", "cut", "wanted"),
    [
        ("<think>x</think><graph>{}", False, ("<think>x</think><graph>{}</graph>", True)),
        ("<graph>{}</graph>", False, ("<graph>{}</graph>", True)),
        ("<graph>{}</graph> and more <answer>1", False, ("<graph>{}</graph>", True)),
        ("<graph>{}", True, ("<graph>{}", False)),
        ("no tag", False, ("no tag", False)),
        ("first <graph> then <answer>3", False, ("first <graph> then <answer>3</answer>", True)),
    ],
)
def test_the_closing_tag_that_chat_apis_leave_out_comes_back(text: str, cut: bool, wanted: tuple[str, bool]) -> None:
    assert close_tag(text, ["</graph>", "</answer>"], cut=cut) == wanted


async def test_what_goes_on_in_the_same_turn_becomes_a_user_message(server: ChatServer) -> None:
    server.reply = lambda body: (200, chat("<graph>{}" if len(body["messages"]) == 1 else "<answer>4"))
    dialogue = await opened(policy(server))
    sample = await dialogue.sample(["</graph>", "</answer>"])
    assert (sample.text, sample.finish) == ("<graph>{}</graph>", "stop")
    dialogue.inject(Injection(kind="continue", text="\n<result>ok</result>\n"))
    assert (await dialogue.sample(["</graph>", "</answer>"])).text == "<answer>4</answer>"
    assert server.requests[-1]["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "<graph>{}</graph>"},
        {"role": "user", "content": "<result>ok</result>"},
    ]


async def test_native_calls_are_read_and_answered_by_id(server: ChatServer) -> None:
    calls = [call("move", '{"direction": "forward", "steps": 1}', "c1"), call("move", "{oops", "c2")]
    server.reply = lambda body: (200, chat(None, "tool_calls", tool_calls=calls))
    dialect = dialect_for(ToyEnv(), "tools")
    env = ToyEnv()
    first = env.reset(ToyEnv.tasks(limit=1)[0])
    made = policy(server)
    await made.prepare()
    prompt = dialect.prompt(env, first, native=made.native_tools)
    dialogue = made.open(prompt, seed=1, play=PLAY)
    sample = await dialogue.sample(dialect.stops)
    move, broken = dialect.parse(sample.text)
    assert move.model_dump() == {"direction": "forward", "steps": 1}
    assert broken.model_dump()["reason"] in ("not_json", "truncated")
    dialogue.inject(dialect.render([(move, first)], turn_ended=True))
    await dialogue.sample(dialect.stops)
    assert server.requests[0]["tools"] == list(prompt.tools)
    assert server.requests[1]["messages"][-3:] == [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": first.text},
        {"role": "tool", "tool_call_id": "c2", "content": "Not executed."},
    ]


async def test_a_call_written_as_text_is_answered_by_the_user(server: ChatServer) -> None:
    server.reply = lambda body: (200, chat('<tool_call>{"name": "move"}'))
    dialogue = await opened(policy(server))
    assert (await dialogue.sample(["</tool_call>"])).text == '<tool_call>{"name": "move"}</tool_call>'
    dialogue.inject(Injection(kind="turn", messages=(Message(role="tool", content="no"),)))
    await dialogue.sample(["</tool_call>"])
    assert server.requests[-1]["messages"][-1] == {"role": "user", "content": "no"}


async def test_reasoning_is_shown_but_not_sent_back(server: ChatServer) -> None:
    server.reply = lambda body: (200, chat("<answer>4", reasoning_content="two and two"))
    dialogue = await opened(policy(server))
    assert (await dialogue.sample(["</answer>"])).text == "<think>two and two</think>\n<answer>4</answer>"
    dialogue.inject(Injection(kind="turn", messages=(Message(role="user", content="sure?"),)))
    await dialogue.sample(["</answer>"])
    assert server.requests[-1]["messages"][1] == {"role": "assistant", "content": "<answer>4</answer>"}


async def test_branches_do_not_share_messages(server: ChatServer) -> None:
    trunk = await opened(policy(server, Sampling(temperature=1.0)))
    await trunk.sample([])
    branch = trunk.fork()
    branch.inject(Injection(kind="turn", messages=(Message(role="user", content="branch"),)))
    trunk.inject(Injection(kind="turn", messages=(Message(role="user", content="trunk"),)))
    await branch.sample([])
    await trunk.sample([])
    assert [request["messages"][-1]["content"] for request in server.requests] == ["hi", "branch", "trunk"]
    assert len({request["seed"] for request in server.requests}) == 3
    assert all(len(request["messages"]) <= 3 for request in server.requests)


async def test_an_empty_budget_asks_nobody(server: ChatServer) -> None:
    dialogue = await opened(policy(server, Sampling(max_tokens=20, context_tokens=15)))
    await dialogue.sample([])
    assert (await dialogue.sample([])).finish == "length"
    assert len(server.requests) == 1


async def fails(server: ChatServer, status: int, body: Any, **options: Any) -> BaseException:
    server.reply = lambda _: (status, body)
    dialogue = await opened(policy(server, **options))
    with pytest.raises((UserError, InfraError)) as caught:
        await dialogue.sample([])
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (500, failure("boom"), InfraError, "status 500: boom"),
        (503, b"<html>busy</html>", InfraError, "status 503"),
        (429, failure("slow down"), InfraError, "requests_per_minute"),
        (429, failure("no money", "insufficient_quota"), UserError, "quota"),
        (401, failure("bad key"), UserError, "OPENAI_API_KEY"),
        (404, failure("The model `small` does not exist."), UserError, "it has: large, small"),
        (400, failure("temperature must be positive"), UserError, "temperature must be positive"),
        (400, failure("filtered", "content_filter"), InfraError, "content filter"),
        (200, b"<html>hello</html>", InfraError, "OpenAI-compatible"),
        (200, {"choices": []}, InfraError, "OpenAI-compatible"),
    ],
)
async def test_each_failure_says_who_is_at_fault(
    server: ChatServer, status: int, body: Any, kind: type[Exception], words: str
) -> None:
    error = await fails(server, status, body)
    assert type(error) is kind
    assert words in str(error)


async def test_a_full_context_is_the_policys_business(server: ChatServer) -> None:
    server.reply = lambda _: (
        400,
        failure("This model's maximum context length is 10 tokens.", "context_length_exceeded"),
    )
    sample = await (await opened(policy(server))).sample([])
    assert (sample.finish, sample.tokens) == ("length", 0)


async def test_a_silent_server_times_out(server: ChatServer) -> None:
    server.reply = lambda _: (time.sleep(1), (200, chat("late")))[1]  # type: ignore[func-returns-value]
    dialogue = await opened(policy(server, timeout=0.2))
    with pytest.raises(InfraError, match=r"did not answer within 0\.2 s"):
        await dialogue.sample([])


async def test_a_failure_that_passes_is_retried(server: ChatServer) -> None:
    answers = iter([(503, failure("busy")), (200, chat("hello"))])
    server.reply = lambda _: next(answers)
    assert (await (await opened(policy(server, retries=1))).sample([])).text == "hello"


async def test_an_episode_at_a_dead_server_is_no_sample() -> None:
    made = OpenAIPolicy("small", "http://127.0.0.1:9/v1", Sampling(), retries=0)
    episode = await rollout(ToyEnv(), ToyEnv.tasks(limit=1)[0], made, limits=Limits(retries=0))
    assert episode.outcome.kind is OutcomeKind.INFRA_FAILURE
    assert episode.outcome.error is not None
    assert "no server answers at http://127.0.0.1:9/v1" in episode.outcome.error
    assert episode.score is None


async def test_many_episodes_share_one_probe_of_a_dead_server() -> None:
    knocks = 0

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal knocks
        knocks += 1
        writer.close()

    dead = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = dead.sockets[0].getsockname()[1]
    made = OpenAIPolicy("small", f"http://127.0.0.1:{port}/v1", Sampling(), retries=1)
    results = await asyncio.gather(*(made.prepare() for _ in range(20)), return_exceptions=True)
    dead.close()
    assert all(isinstance(result, InfraError) for result in results)
    assert knocks == 2


async def test_an_env_is_played_to_the_end_with_native_calls(server: ChatServer) -> None:
    server.reply = lambda _: (200, chat(None, "tool_calls", tool_calls=[call("answer", '{"text": "nowhere"}', "c")]))
    env = ToyEnv()
    episode = await rollout(env, ToyEnv.tasks(limit=1)[0], policy(server), dialect=dialect_for(env, "tools"))
    assert episode.outcome.stop is StopReason.ANSWER
    assert episode.tokens.sampled == 5


async def test_an_api_with_newer_names_is_adapted_to(server: ChatServer) -> None:
    def reply(body: dict[str, Any]) -> Answer:
        if "max_tokens" in body:
            return 400, failure("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        if "stop" in body:
            return 400, failure("Unsupported parameter: 'stop' is not supported with this model.")
        return 200, chat("<answer>4</answer> and so on")

    server.reply = reply
    dialogue = await opened(policy(server))
    assert (await dialogue.sample(["</answer>"])).text == "<answer>4</answer>"
    await dialogue.sample(["</answer>"])
    assert len(server.requests) == 4
    assert server.requests[-1]["max_completion_tokens"] == 20


async def test_as_many_requests_run_at_once_as_allowed(server: ChatServer) -> None:
    pair = threading.Barrier(2)
    server.reply = lambda _: (pair.wait(timeout=30), (200, chat("x")))[1]
    made = policy(server, max_concurrency=2, mode="messages")
    await asyncio.gather(*[(await opened(made)).sample([]) for _ in range(6)])
    assert server.most == 2


async def test_requests_are_spread_evenly(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    paced = policy(server, requests_per_minute=1, mode="messages")
    dialogues = [await opened(paced) for _ in range(4)]
    monkeypatch.setattr("agl.policies.openai_api.asyncio.sleep", sleep)
    await asyncio.gather(*(dialogue.sample([]) for dialogue in dialogues))
    assert pauses == pytest.approx([0, 60, 120, 180], abs=30)


async def test_an_answer_that_a_filter_cut_is_no_sample(server: ChatServer) -> None:
    server.reply = lambda _: (200, chat("<answer>", "content_filter"))
    episode = await rollout(ToyEnv(), ToyEnv.tasks(limit=1)[0], policy(server), limits=Limits(retries=0))
    assert episode.outcome.kind is OutcomeKind.INFRA_FAILURE
    assert "content filter" in (episode.outcome.error or "")
    assert episode.score is None


async def test_a_think_block_may_have_been_opened_by_a_template_nobody_sees(server: ChatServer, tmp_path: Path) -> None:
    server.reply = lambda _: (200, chat("hm</think><answer>nowhere"))
    episode = await rollout(ToyEnv(), ToyEnv.tasks(limit=1)[0], policy(server))
    assert [event.action for event in episode.events] == ["answer"]
    with EpisodeWriter(tmp_path / "episodes.jsonl") as writer:
        writer.write(episode)
    again = await rollout(ToyEnv(), ToyEnv.tasks(limit=1)[0], Replay(tmp_path / "episodes.jsonl"))
    assert (again.events, again.score) == (episode.events, episode.score)


def test_one_policy_serves_one_loop_after_another(server: ChatServer) -> None:
    made = policy(server)

    async def once() -> str:
        return (await (await opened(made)).sample([])).text

    assert [asyncio.run(once()) for _ in range(2)] == ["hello", "hello"]


async def test_the_key_comes_from_the_environment(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    await (await opened(policy(server))).sample([])
    assert server.keys == ["Bearer secret"]


def test_names_of_policies() -> None:
    made = build_policy("openai:org/model@v2@http://127.0.0.1:1/v1", Sampling(), retries=1)
    assert isinstance(made, OpenAIPolicy)
    assert (made.model, made.base_url) == ("org/model@v2", "http://127.0.0.1:1/v1")
    for spec, words in [
        ("openai:model", "expected openai:MODEL@http"),
        ("gpt", "there is no policy 'gpt'; expected one of: oracle"),
        ("oracle:x", "there is no policy"),
        ("hf:", "there is no policy"),
    ]:
        with pytest.raises(UserError, match=words):
            build_policy(spec, Sampling())
    with pytest.raises(UserError, match="did you mean 'mode'"):
        build_policy("openai:m@http://h/v1", Sampling(), modus="tokens")
    with pytest.raises(UserError, match="'auto', 'tokens' or 'messages'"):
        build_policy("openai:m@http://h/v1", Sampling(), mode="chat")


@pytest.mark.parametrize(
    "url", ["http://h:99999/v1", "http://h:port/v1", "http://[h/v1", "http://", "ftp://h/v1", "http://:80/v1"]
)
def test_an_address_that_cannot_be_one_is_refused_at_once(url: str) -> None:
    with pytest.raises(UserError, match="expected a server URL"):
        OpenAIPolicy("m", url, Sampling())


@pytest.mark.parametrize(
    ("option", "value"),
    [("retries", "many"), ("timeout", "1 min"), ("timeout", float("nan")), ("max_concurrency", 1.5), ("api_key", 5)],
)
def test_an_option_of_the_wrong_type_is_refused(option: str, value: object) -> None:
    with pytest.raises(UserError, match=f"option {option} of the policy"):
        build_policy("openai:m@http://h/v1", Sampling(), **{option: value})


@pytest.mark.parametrize(
    "answer",
    [
        {"choices": "text"},
        {"choices": [None]},
        {"choices": [{"finish_reason": "stop"}]},
        {"choices": [{"message": "hello"}]},
        chat([{"type": "text", "text": "hello"}]),  # type: ignore[arg-type]
        chat(None, tool_calls=[{"id": "c", "type": "function"}]),
        {**chat("hello"), "usage": "none"},
        b"",
        b'{"choices": [',
        b'{"choices": "\xff\xfe"}',
    ],
)
async def test_an_answer_of_another_form_is_the_servers_fault(server: ChatServer, answer: Any) -> None:
    assert type(await fails(server, 200, answer)) is InfraError


async def test_calls_of_odd_form_are_read_as_they_stand(server: ChatServer) -> None:
    calls = [
        {"function": {"name": "move", "arguments": {"direction": "forward", "steps": 1}}},
        {"id": None, "function": {"name": None, "arguments": None}},
    ]
    server.reply = lambda _: (200, chat(None, "tool_calls", tool_calls=calls))
    dialogue = await opened(policy(server))
    text = (await dialogue.sample([])).text
    move, broken = dialect_for(ToyEnv(), "tools").parse(text)
    assert move.model_dump() == {"direction": "forward", "steps": 1}
    assert isinstance(broken, Malformed)


async def test_half_a_surrogate_pair_can_be_sent_back(server: ChatServer) -> None:
    server.reply = lambda _: (200, chat("\ud800 hi", tool_calls=[call("move\udfff", '{"a": "\ud800"}', "c")]))
    dialogue = await opened(policy(server))
    assert (await dialogue.sample([])).text.startswith("\ufffd hi")
    await dialogue.sample([])
    assert server.requests[1]["messages"][1]["tool_calls"] == [call("move\ufffd", '{"a": "\ufffd"}', "c")]
