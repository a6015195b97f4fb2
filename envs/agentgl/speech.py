"""What the policy has written in an episode, in the paper's protocol, whatever dialect it was written in."""

from __future__ import annotations

import re

from agl.core import Action, Malformed
from agl.dialects.queries import QUERY, QUERY_END, THINK, THINK_END, Queries, Unread
from envs.agentgl.actions import Answer, Said, Search

_CALL = re.compile(r"<(tool_call|search|answer)>")
_THINK_TAG = re.compile(r"</?think>")
_WRITER = Queries((Search, Answer))


class Speech:
    """Text of the policy, split where results were inserted: what rewards look at.

    Turns in the dialect `queries` are kept as they are. A turn in another one is put into that protocol: there the
    form is not the policy's merit, only the reasoning before its call is. What could not be read counts in `queries`
    only.
    """

    def __init__(self) -> None:
        self._parts = [""]
        self._turn: str | None = None
        self._rest = ""
        self._foreign = False

    @property
    def parts(self) -> tuple[str, ...]:
        """Part i comes before the i-th search that was executed, the last one after all."""
        return (*self._parts[:-1], self._parts[-1] + self._rest)

    @property
    def empty(self) -> bool:
        return not any(self.parts)

    @property
    def in_think(self) -> bool:
        """Whether a think block is open at the end."""
        text = "".join(self.parts)
        return text.rfind(THINK) > text.rfind(THINK_END)

    def hear(self, action: Action | Malformed) -> None:
        """Take note of the text of `action`: of its turn, up to the end of the action."""
        said = action.said if isinstance(action, Said | Unread) else ""
        if isinstance(action, Said) and self._is_foreign(action, said):
            self._foreign = True
            self._parts[-1] += self._translated(action, said)
            return
        if said != self._turn:
            self._flush()
            self._turn, self._rest = said, said
        if isinstance(action, Search):
            head, mark, self._rest = self._rest.partition(QUERY_END)
            self._parts[-1] += head + mark
        else:
            self._flush()

    def searched(self) -> None:
        """A search was executed: what follows comes after its result."""
        self._parts.append("")

    def end_turn(self) -> None:
        self._flush()
        self._turn = None

    def _flush(self) -> None:
        self._parts[-1] += self._rest
        self._rest = ""

    def _is_foreign(self, action: Said, said: str) -> bool:
        if isinstance(action, Search):
            return QUERY not in said
        return self._foreign or "<answer>" not in said

    def _translated(self, action: Said, said: str) -> str:
        call = _CALL.search(said)
        thought = _THINK_TAG.sub(" ", said[: call.start()]).strip() if call else ""
        return _WRITER.write(action.placed(self.empty), thought)
