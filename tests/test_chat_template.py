"""Later turns extend the first prompt token by token, or the template is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl.errors import UserError
from agl.messages import Message
from agl.policies.chat_template import ChatTemplate, as_chat

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
DEFAULT_SYSTEM = (
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nBe nice<|im_end|>\n' }}{% endif %}" + CHATML
)
LEADING_BLANK = CHATML.replace(
    "+ '\n' + m['content']", "+ '\n' + (' ' if m['role'] == 'assistant' else '') + m['content']"
)
STRIPS_THINKING = (
    "{% for m in messages %}{% set text = m['content'] %}"
    "{% if m['role'] == 'assistant' and not loop.last %}{% set text = text.split('</think>')[-1].strip() %}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + text + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
EMPTY_THINK = (
    "{% for m in messages %}{% set lead = '<think>\n\n</think>\n\n' "
    "if m['role'] == 'assistant' and loop.last and '</think>' not in m['content'] else '' %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + lead + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
OPENS_THINKING = CHATML.replace("'<|im_start|>assistant\n'", "'<|im_start|>assistant\n<think>\n'")
NO_TOOLS = (
    "{% for m in messages if m['role'] == 'tool' %}{{ raise_exception('no tool turns here') }}{% endfor %}" + CHATML
)


def byte_tokenizer(template: str | None = CHATML) -> Any:
    """One token per byte, and ChatML's two special tokens."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    model = tokenizers.models.BPE({letter: place for place, letter in enumerate(alphabet)}, [])
    raw = tokenizers.Tokenizer(model)
    raw.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = tokenizers.decoders.ByteLevel()
    raw.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|im_end|>")
    made.chat_template = template
    return made


BYTES = byte_tokenizer()
END = BYTES.convert_tokens_to_ids("<|im_end|>")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def user(text: str) -> Message:
    return Message(role="user", content=text)


@given(question=TEXTS, said=TEXTS, result=TEXTS, closed=st.booleans())
def test_appending_a_turn_equals_the_full_render(question: str, said: str, result: str, closed: bool) -> None:
    template = ChatTemplate(BYTES)
    log = template.first([user(question)]) + BYTES.encode(said, add_special_tokens=False) + [END] * closed
    log += template.turn([Message(role="tool", content=result)], END if closed else None)
    conversation = [user(question), Message(role="assistant", content=said), Message(role="tool", content=result)]
    assert log == BYTES.apply_chat_template(
        as_chat(conversation), add_generation_prompt=True, tokenize=True, return_dict=False
    )


def test_no_system_prompt_is_gained_by_a_later_turn() -> None:
    template = ChatTemplate(byte_tokenizer(DEFAULT_SYSTEM))
    suffix = BYTES.decode(template.turn([user("go on")], END))
    assert suffix == "\n<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n"


def test_a_turn_that_was_cut_is_closed_first() -> None:
    suffix = BYTES.decode(ChatTemplate(BYTES).turn([user("go on")], None))
    assert suffix.startswith("<|im_end|>\n<|im_start|>user\n")


def test_a_turn_closed_by_another_end_token_is_closed_as_the_template_does() -> None:
    template = ChatTemplate(BYTES)
    assert template.turn([user("go on")], 7_000) == template.turn([user("go on")], None)


def test_a_blank_before_the_assistant_text_is_no_reason_to_refuse() -> None:
    ChatTemplate(byte_tokenizer(LEADING_BLANK))


@pytest.mark.parametrize("template", [STRIPS_THINKING, EMPTY_THINK, OPENS_THINKING])
def test_a_template_that_changes_the_prefix_is_refused_with_the_cure(template: str) -> None:
    with pytest.raises(UserError, match=r"would not extend the tokens.*chat_template"):
        ChatTemplate(byte_tokenizer(template))


def test_a_given_template_replaces_the_one_of_the_model() -> None:
    template = ChatTemplate(byte_tokenizer(STRIPS_THINKING), CHATML)
    assert template.first([user("a")]) == ChatTemplate(BYTES).first([user("a")])


def test_a_base_model_is_refused_with_the_cure() -> None:
    with pytest.raises(UserError, match="has no chat template"):
        ChatTemplate(byte_tokenizer(None))


def test_a_role_the_template_refuses_is_named() -> None:
    template = ChatTemplate(byte_tokenizer(NO_TOOLS))
    with pytest.raises(UserError, match=r"user, assistant, tool.*no tool turns here"):
        template.turn([Message(role="tool", content="x")], END)


def test_special_tokens_in_injected_text_are_only_text() -> None:
    template = ChatTemplate(BYTES)
    ids = template.encode("<result><|im_end|></result>")
    assert END not in ids
    assert BYTES.decode(ids) == "<result><|im_end|></result>"


@pytest.mark.slow
def test_the_training_template_of_trl_cures_qwen3() -> None:
    trl = pytest.importorskip("trl.chat_template_utils")
    from agl.policies.hf import read_template

    qwen3 = byte_tokenizer(trl.qwen3_chat_template)
    with pytest.raises(UserError, match="training"):
        ChatTemplate(qwen3)
    ChatTemplate(qwen3, read_template("training", qwen3))
