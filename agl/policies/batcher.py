"""Micro-batching: many dialogues wait, one worker thread runs their requests together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from agl.errors import AglError, InfraError

RequestT = TypeVar("RequestT")
ResultT = TypeVar("ResultT")


@dataclass(eq=False)
class _Waiting(Generic[RequestT, ResultT]):
    request: RequestT
    key: Hashable
    future: asyncio.Future[ResultT]


class Batcher(Generic[RequestT, ResultT]):
    """Collects requests and hands them to `run` in batches, one batch at a time.

    A batch leaves when it is full or when nothing new came for `quiet` seconds. While one runs, the next collects.
    Usable from one event loop after another, not from two at once.

    Args:
        run: blocking; gets requests of one key, and for each a function that tells whether its waiter has gone;
            returns as many results, in order. Called in one worker thread, always the same.
        key: requests with different keys never share a batch.
        max_batch: most requests in one batch.
        quiet: seconds.
    """

    def __init__(
        self,
        run: Callable[[Sequence[RequestT], Sequence[Callable[[], bool]]], Sequence[ResultT]],
        *,
        key: Callable[[RequestT], Hashable],
        max_batch: int,
        quiet: float = 0.005,
    ) -> None:
        self._run = run
        self._key = key
        self._max_batch = max_batch
        self._quiet = quiet
        self._waiting: list[_Waiting[RequestT, ResultT]] = []
        self._arrival = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="agl-batch")

    async def submit(self, request: RequestT) -> ResultT:
        """Wait for the result of `request`.

        Raises:
            InfraError: `run` failed; every request of its batch fails alike.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._pump, self._waiting, self._arrival = loop, None, [], asyncio.Event()
        entry: _Waiting[RequestT, ResultT] = _Waiting(request, self._key(request), loop.create_future())
        self._waiting.append(entry)
        self._arrival.set()
        if self._pump is None or self._pump.done():
            self._pump = loop.create_task(self._work())
        return await entry.future

    def close(self) -> None:
        """Let the running batch end and refuse further ones."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while await self._collect():
            batch = self._take()
            if not batch:
                continue
            gone = [entry.future.done for entry in batch]
            try:
                results = await loop.run_in_executor(self._thread, self._run, [entry.request for entry in batch], gone)
                for entry, result in zip(batch, results, strict=True):
                    if not entry.future.done():
                        entry.future.set_result(result)
            except Exception as error:
                self._fail(batch, error)

    async def _collect(self) -> bool:
        """Wait until a batch is due; False when nobody waits any more."""
        while True:
            self._waiting = [entry for entry in self._waiting if not entry.future.done()]
            if not self._waiting:
                return False
            first = self._waiting[0].key
            if sum(entry.key == first for entry in self._waiting) >= self._max_batch:
                return True
            self._arrival.clear()
            try:
                await asyncio.wait_for(self._arrival.wait(), self._quiet)
            except TimeoutError:
                return True

    def _take(self) -> list[_Waiting[RequestT, ResultT]]:
        alive = [entry for entry in self._waiting if not entry.future.done()]
        batch = [entry for entry in alive if entry.key == alive[0].key][: self._max_batch]
        self._waiting = [entry for entry in alive if entry not in batch]
        return batch

    @staticmethod
    def _fail(batch: Sequence[_Waiting[RequestT, ResultT]], error: Exception) -> None:
        for entry in batch:
            if not entry.future.done():
                said = error if isinstance(error, AglError) else InfraError(f"{type(error).__name__}: {error}")
                said.__cause__ = None if said is error else error
                entry.future.set_exception(said)
