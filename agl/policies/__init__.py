"""Who decides: scripted policies, local models, and model servers, behind one `Dialogue` interface."""

from __future__ import annotations

from agl.policies.policy import Dialogue, Play, Policy, Sample, Sampling

__all__ = ["Dialogue", "Play", "Policy", "Sample", "Sampling"]
