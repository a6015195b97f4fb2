"""The error family: who is at fault decides what happens next.

A `UserError` reaches the terminal as one sentence and exit code 2. An `InfraError` inside an episode
makes that episode an infrastructure failure: retried, then excluded and counted, never scored as 0.
What a *policy* does wrong is never an exception; it is a `Malformed` action or an observation.
"""

from __future__ import annotations


class AglError(Exception):
    """Root of everything AGL raises on purpose."""


class UserError(AglError):
    """Wrong argument, path, file or configuration. The message says what was expected, what came, what to do."""


class DataError(UserError):
    """A data file or graph that cannot be used as given."""


class InfraError(AglError):
    """The machinery failed (server down, deadline, broken environment); the policy is not to blame."""


class DeadlineError(InfraError):
    """An episode ran past its wall-clock deadline."""
