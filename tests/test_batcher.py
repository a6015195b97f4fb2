"""Requests share batches, and each gets its own result, whatever happens to the others."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agl.errors import InfraError, UserError
from agl.policies.batcher import Batcher

Gone = Sequence[Callable[[], bool]]


class Machine:
    """Doubles numbers, and remembers its batches and threads. A `held` one works only once it is released."""

    def __init__(self, *, held: bool = False) -> None:
        self.batches: list[list[int]] = []
        self.threads: set[int] = set()
        self.started = threading.Event()
        self.released = threading.Event()
        if not held:
            self.released.set()

    def __call__(self, requests: Sequence[int], gone: Gone) -> list[int]:
        self.batches.append(list(requests))
        self.threads.add(threading.get_ident())
        self.started.set()
        self.released.wait()
        if any(request < 0 for request in requests):
            raise ValueError("negative")
        return [2 * request for request in requests]


def batcher(machine: Callable[[Sequence[int], Gone], Sequence[int]], max_batch: int = 8) -> Batcher[int, int]:
    return Batcher(machine, key=lambda request: request % 2, max_batch=max_batch)


@given(requests=st.lists(st.integers(0, 50), max_size=40), max_batch=st.integers(1, 9))
@settings(max_examples=25, deadline=None)
def test_each_request_gets_its_result_in_batches_of_one_key(requests: list[int], max_batch: int) -> None:
    machine = Machine()

    async def run() -> list[int]:
        shared = batcher(machine, max_batch)
        results = await asyncio.gather(*map(shared.submit, requests))
        shared.close()
        return results

    assert asyncio.run(run()) == [2 * request for request in requests]
    assert sorted(chain.from_iterable(machine.batches)) == sorted(requests)
    assert all(len({request % 2 for request in batch}) == 1 and len(batch) <= max_batch for batch in machine.batches)


async def test_what_comes_together_runs_together_in_one_thread() -> None:
    machine = Machine()
    shared = batcher(machine)
    await asyncio.gather(*map(shared.submit, [0, 2, 4, 6]))
    await asyncio.gather(*map(shared.submit, [0, 2]))
    assert [len(batch) for batch in machine.batches] == [4, 2]
    assert len(machine.threads) == 1
    assert machine.threads != {threading.get_ident()}


@pytest.mark.timeout(30)
async def test_requests_collect_while_a_batch_runs_and_the_loop_stays_free() -> None:
    machine = Machine(held=True)
    shared = batcher(machine)
    first = asyncio.create_task(shared.submit(0))
    await asyncio.to_thread(machine.started.wait)
    others = [asyncio.create_task(shared.submit(number)) for number in (2, 4, 6)]
    await asyncio.sleep(0)
    machine.released.set()  # a loop that waits for the batch never comes here
    await asyncio.gather(first, *others)
    assert machine.batches == [[0], [2, 4, 6]]


async def test_a_failing_batch_fails_its_own_requests_only() -> None:
    shared = batcher(Machine())
    results = await asyncio.gather(*map(shared.submit, [-2, 4, 3]), return_exceptions=True)
    assert [type(result) for result in results] == [InfraError, InfraError, int]
    assert "negative" in str(results[0])
    assert results[0] is not results[1]
    assert await shared.submit(8) == 16


async def test_errors_that_say_who_is_at_fault_pass_unchanged() -> None:
    def refuse(requests: Sequence[int], gone: Gone) -> list[int]:
        raise UserError("no such model")

    with pytest.raises(UserError, match="no such model"):
        await batcher(refuse).submit(1)


async def test_a_wrong_number_of_results_hangs_nobody() -> None:
    shared = batcher(lambda requests, gone: [1])
    results = await asyncio.gather(shared.submit(2), shared.submit(4), return_exceptions=True)
    assert any(isinstance(result, InfraError) for result in results)


async def test_cancelling_one_waiter_leaves_the_others() -> None:
    machine = Machine()
    shared = batcher(machine)
    leaves = asyncio.create_task(shared.submit(2))
    stays = asyncio.create_task(shared.submit(4))
    await asyncio.sleep(0)
    leaves.cancel()
    assert await stays == 8
    assert machine.batches == [[4]]


@pytest.mark.timeout(30)
async def test_a_running_batch_learns_that_its_waiter_has_gone() -> None:
    noticed = threading.Event()

    def run(requests: Sequence[int], gone: Gone) -> list[int]:
        while not gone[0]():
            time.sleep(0.005)
        noticed.set()
        return list(requests)

    shared = batcher(run)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(shared.submit(2), 0.1)
    await asyncio.to_thread(shared.close)
    assert noticed.is_set()


def test_one_batcher_serves_one_loop_after_another() -> None:
    shared = batcher(Machine())
    assert [asyncio.run(shared.submit(number)) for number in (1, 2, 3)] == [2, 4, 6]
