"""A guard against environments that block: the event loop that plays all episodes of a rank runs their code itself."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType

from agl.errors import InfraError


class BlockedError(InfraError):
    """A call that did not come back in time."""


@asynccontextmanager
async def blocking_calls_end(seconds: float) -> AsyncIterator[None]:
    """Inside, a synchronous call that blocks the event loop for `seconds` raises BlockedError where it stands.

    In code of an environment that fails its episode and no other. An alarm is set again and again by the loop, so it
    only rings when the loop stands still. Where there is no such alarm (another thread than the main one, Windows),
    nothing is guarded. Code of C libraries is interrupted once it comes back to Python.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        # Once more later, should the call swallow this one.
        signal.setitimer(signal.ITIMER_REAL, seconds)
        raise BlockedError(f"a call of the environment blocked for {seconds:g} s (option call_deadline)")

    async def beat() -> None:
        while True:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            await asyncio.sleep(min(1.0, seconds / 4))

    before = signal.signal(signal.SIGALRM, ring)
    beating = asyncio.create_task(beat())
    # Not before the first beat, which must not find the loop blocked already.
    await asyncio.sleep(0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        beating.cancel()
        signal.signal(signal.SIGALRM, before)
