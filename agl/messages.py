"""What passes between an env's dialect and a policy: messages, the first prompt and later injections."""

from __future__ import annotations

from typing import Any, Literal

from agl.core import Frozen

Role = Literal["system", "user", "assistant", "tool"]


class Message(Frozen):
    """One chat message. `tool_call_id` ties a `tool` message to the call it answers, where an API needs that."""

    role: Role
    content: str
    tool_call_id: str | None = None


class Prompt(Frozen):
    """The first context of an episode. `tools` holds function schemas for policies that call tools natively."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()


class Injection(Frozen):
    """What the loop adds to a dialogue after the policy has spoken; never trained on.

    `continue`: `text` goes on in the same assistant turn. `turn`: `messages` follow and a new assistant turn opens.
    `fresh`: the context is rebuilt from `messages` alone (ReaGAN rebuilds it for each layer).
    """

    kind: Literal["continue", "turn", "fresh"]
    text: str = ""
    messages: tuple[Message, ...] = ()
