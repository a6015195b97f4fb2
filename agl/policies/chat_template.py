"""Chat templates without re-encoding: the first prompt is rendered once, later turns are appended as exact suffixes.

A suffix is the difference of two full renders of a short stand-in conversation, so no border newline is lost and no
system prompt is gained. That is only sound for a template that leaves earlier text alone, which a probe checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agl.errors import UserError
from agl.messages import Message

Chat = list[dict[str, Any]]

_STAND_INS = ("b", "<think>\na\n</think>\n\nb")
"""Assistant turns the probe uses; some templates strip reasoning from earlier turns."""


def as_chat(messages: Sequence[Message]) -> Chat:
    """Messages in the form chat templates and chat APIs take."""
    return [message.model_dump(exclude_none=True) for message in messages]


def stand_in(content: str = _STAND_INS[0]) -> Chat:
    """A conversation in which the assistant has just said `content`."""
    return [{"role": "user", "content": "a"}, {"role": "assistant", "content": content}]


def after_turn(spoken: Sequence[int], full: Sequence[int], closed_by: int | None) -> list[int]:
    """Tokens that follow an assistant turn.

    Args:
        spoken: render of a conversation up to the last character the assistant said.
        full: render of the same conversation with the new messages and the opening of the next assistant turn.
        closed_by: the token with which the policy itself ended its turn, or None when something cut it. The suffix
            then supplies the end of the turn.

    Raises:
        UserError: `full` does not begin with `spoken`.
    """
    if list(full[: len(spoken)]) != list(spoken):
        raise UserError(_REFUSAL.format(fault="it rewrites earlier turns when a turn is added"))
    suffix = list(full[len(spoken) :])
    if closed_by is not None and closed_by in suffix:
        suffix = suffix[suffix.index(closed_by) + 1 :]
    return suffix


_REFUSAL = (
    "the chat template of this model cannot be used for several turns: {fault}, so later turns would not extend the "
    "tokens that were sampled; use a model without hybrid thinking (an Instruct-2507 one, for example), or set "
    "the policy option chat_template to the file of a template that keeps earlier turns as they were, or to 'training' "
    "to take TRL's"
)


def check_template(
    opened: Sequence[int], renders: Sequence[tuple[Sequence[int], Sequence[int], Sequence[int]]]
) -> None:
    """Refuse a template under which a second turn does not extend the first.

    Args:
        opened: render of the stand-in user message with the assistant turn opened.
        renders: for each stand-in assistant turn: its own tokens; the conversation up to its last character; and the
            conversation with one more user message.

    Raises:
        UserError: names the cure.
    """
    for _, spoken, full in renders:
        after_turn(spoken, full, None)
    # With a complete think block: a training template may add an empty one to a turn without.
    content, spoken, _ = renders[-1]
    blanks = len(spoken) - len(opened) - len(content)
    if list(spoken[: len(opened)]) != list(opened) or not 0 <= blanks <= 1:
        raise UserError(_REFUSAL.format(fault="it opens an assistant turn otherwise than it renders one"))


def probe_conversations() -> list[tuple[str, Chat, Chat]]:
    """What `check_template` wants rendered: (assistant text, chat that ends with it, chat with one more message)."""
    return [(text, stand_in(text), [*stand_in(text), {"role": "user", "content": "c"}]) for text in _STAND_INS]


class ChatTemplate:
    """The chat template of a local tokenizer.

    Args:
        tokenizer: a transformers tokenizer.
        template: Jinja source that replaces the tokenizer's own; None keeps that.

    Raises:
        UserError: the model has no chat template, or one under which later turns change earlier ones.
    """

    def __init__(self, tokenizer: Any, template: str | None = None) -> None:
        self._tokenizer = tokenizer
        self._template = template
        if template is None and not getattr(tokenizer, "chat_template", None):
            raise UserError(
                "this model has no chat template (a base model?); choose an instruct model, "
                "or set chat_template to a Jinja file"
            )
        opened = self._render(stand_in()[:1], open_turn=True)
        renders = [
            (
                self._tokenizer.encode(text, add_special_tokens=False),
                self._render(spoken, within_turn=True),
                self._render(full, open_turn=True),
            )
            for text, spoken, full in probe_conversations()
        ]
        check_template(opened, renders)

    def _render(
        self,
        chat: Chat,
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        open_turn: bool = False,
        within_turn: bool = False,
    ) -> list[int]:
        import jinja2

        try:
            ids = self._tokenizer.apply_chat_template(
                chat,
                tools=[dict(tool) for tool in tools] or None,
                chat_template=self._template,
                add_generation_prompt=open_turn,
                continue_final_message=within_turn,
                tokenize=True,
                return_dict=False,
            )
        except (jinja2.TemplateError, ValueError) as error:
            roles = ", ".join(message["role"] for message in chat)
            raise UserError(f"the chat template of this model refuses the turns {roles}: {error}") from error
        return [int(token) for token in ids]

    def encode(self, text: str) -> list[int]:
        """Tokens of `text` alone, nothing added; what looks like a special token is only text."""
        return list(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))

    def first(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """A whole conversation with the next assistant turn opened."""
        return self._render(as_chat(messages), tools, open_turn=True)

    def turn(self, messages: Sequence[Message], closed_by: int | None) -> list[int]:
        """What to append so that `messages` follow the assistant's turn and the next one opens; see `after_turn`."""
        spoken = self._render(stand_in(), within_turn=True)
        full = self._render([*stand_in(), *as_chat(messages)], open_turn=True)
        return after_turn(spoken, full, closed_by)
