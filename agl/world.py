"""World: what the episodes of one run let each other know, round by round, whatever their concurrency.

Every episode posts at the end of a round and goes on when all others have posted for it too, or have ended. What it
then reads is a pure function of the posts, so results do not depend on how many episodes run at once. Used by
environments whose episodes are neighbours of each other (ReaGAN: messages of layer l are seen in layer l + 1).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from agl.core import Post
from agl.json_text import dumps

Key = tuple[str, int]
"""Task id and attempt. Episodes of different attempts do not know of each other."""


class World:
    """The posts of one run.

    Args:
        members: keys of all its episodes, in the order in which posts are read.
        slots: most episodes that may run at once; one that waits for others holds no slot.
        journal: file that keeps what unfinished episodes have said, so that a run that was interrupted between two
            rounds goes on from there; None keeps nothing.
        on_post: called when an episode has posted, for those who watch.
    """

    def __init__(
        self,
        members: Iterable[Key],
        *,
        slots: int,
        journal: Path | None = None,
        on_post: Callable[[Post], None] | None = None,
    ) -> None:
        self._reached: dict[Key, int] = dict.fromkeys(members, -1)
        """The highest round for which a member has posted."""
        self._present = dict.fromkeys(self._reached)
        self._posts: dict[Key, dict[int, Post]] = {key: {} for key in self._reached}
        self._rounds: dict[tuple[int, int], _Round] = {}
        self._slots = asyncio.Semaphore(slots)
        self._journal = journal
        self._on_post = on_post
        self._drafts = _read(journal) if journal is not None else {}

    @asynccontextmanager
    async def member(self, key: Key) -> AsyncIterator[None]:
        """Hold a slot while the episode `key` runs; it has left the world at the end."""
        try:
            async with self._slots:
                yield
        finally:
            self.leave(key)

    async def exchange(self, key: Key, post: Post) -> Mapping[str, Post]:
        """Post and wait for the others; returns the latest post of every episode up to this round, by task id.

        An episode that is repeated after a failure posts again: what others may have read stands.
        """
        self._take(key, post)
        if self._on_post is not None:
            self._on_post(post)
        number, attempt = post.round, key[1]
        gathered = self._round(attempt, number)
        if not gathered.complete.is_set():
            self._slots.release()
            try:
                await gathered.complete.wait()
            finally:
                await self._slots.acquire()
        if gathered.view is None:
            gathered.view = MappingProxyType(self._latest(attempt, number))
        return gathered.view

    def recall(self, key: Key, posts: Sequence[Post]) -> None:
        """Take in an episode that ended in an earlier session."""
        for post in posts:
            self._take(key, post)
        self.leave(key)

    def leave(self, key: Key) -> None:
        """Nobody waits for this episode any more; its posts stay."""
        if key in self._present:
            del self._present[key]
            for (attempt, number), gathered in self._rounds.items():
                if attempt == key[1] and self._reached[key] < number:
                    gathered.one_less()

    def draft(self, key: Key, said: Sequence[Mapping[str, Any]]) -> None:
        """Keep what an unfinished episode has said so far."""
        if self._journal is not None:
            with self._journal.open("a", encoding="utf-8") as file:
                file.write(dumps({"id": key[0], "attempt": key[1], "said": [dict(sample) for sample in said]}) + "\n")

    def drafted(self, key: Key) -> list[dict[str, Any]]:
        """What the episode had said when an earlier session was interrupted."""
        return self._drafts.get(key, [])

    def _take(self, key: Key, post: Post) -> None:
        before = self._reached[key]
        if post.round <= before:
            return
        self._posts[key][post.round] = post
        self._reached[key] = post.round
        for (attempt, number), gathered in self._rounds.items():
            if key in self._present and attempt == key[1] and before < number <= post.round:
                gathered.one_less()

    def _round(self, attempt: int, number: int) -> _Round:
        if (attempt, number) not in self._rounds:
            awaited = sum(key[1] == attempt and self._reached[key] < number for key in self._present)
            self._rounds[attempt, number] = _Round(awaited)
        return self._rounds[attempt, number]

    def _latest(self, attempt: int, number: int) -> dict[str, Post]:
        found = {}
        for key, posts in self._posts.items():
            rounds = [posted for posted in posts if posted <= number]
            if key[1] == attempt and rounds:
                found[key[0]] = posts[max(rounds)]
        return found


class _Round:
    """One round of one attempt: how many posts are missing, and what all will read."""

    def __init__(self, awaited: int) -> None:
        self._awaited = awaited
        self.complete = asyncio.Event()
        self.view: Mapping[str, Post] | None = None
        if not awaited:
            self.complete.set()

    def one_less(self) -> None:
        self._awaited -= 1
        if not self._awaited:
            self.complete.set()


def _read(journal: Path) -> dict[Key, list[dict[str, Any]]]:
    """The last draft of each episode; a torn last line is skipped."""
    found: dict[Key, list[dict[str, Any]]] = {}
    if not journal.exists():
        return found
    for line in journal.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        found[entry["id"], entry["attempt"]] = entry["said"]
    return found
