"""What the agent can do: search a pool, answer. Both remember the text that they were read from.

AgentGL's rewards look at how the policy writes (blocks, tags, length of reasoning), which an action alone does not say.
"""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, PrivateAttr

from agl import core
from agl.core import Action, Malformed


class Said(Action):
    """An action with the text of its turn, which is no part of what is compared."""

    _said: str = PrivateAttr("")
    _opens: bool | None = PrivateAttr(None)

    @classmethod
    def read(cls, arguments: object, text: str = "") -> Self | Malformed:
        found = super().read(arguments, text)
        if not isinstance(found, Malformed):
            found._said = text
        return found

    @property
    def said(self) -> str:
        """All that the policy wrote in the turn of this action; empty where it was not read from text."""
        return self._said

    @property
    def opens(self) -> bool | None:
        """Whether this is the first turn of its episode, so that its text opens the think block; None: not known."""
        return self._opens

    def placed(self, first: bool) -> Self:
        """The same action, which knows its place."""
        found = self.model_copy()
        found._opens = first
        return found

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))


class Search(Said):
    """Search one pool of the graph for texts around the target."""

    tag: ClassVar[str] = "search"
    pool: str = Field(description="1-hop, 2-hop, pagerank or similar")
    query: str = Field(description="what to look for, in free words; may be empty")


class Answer(Said, core.Answer):
    """Give the final answer. This ends the episode."""

    text: str = Field(description="the answer alone, without reasoning")
