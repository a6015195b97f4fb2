"""A multi-agent baseline for GRIT in the manner of MA-GTS (arXiv 2502.18540): six agents over one model, each asked
once.

MA-GTS splits the work into extracting information, integrating knowledge and running an algorithm. The prompts here are
our own words. Its agents compute answers themselves; here the solver agent calls GRIT's graph tool, so that both kinds
of systems have the same tool and differ in how the question becomes a graph.
"""

from __future__ import annotations

from pathlib import Path

from agl.policies.pipeline import QUESTION, RESULT, Pipeline, Role
from agl.policies.policy import Policy

_READS: dict[str, tuple[str, ...]] = {
    "extractor": (QUESTION,),
    "builder": (QUESTION, "extractor"),
    "theory": (QUESTION, "extractor"),
    "structure": ("extractor", "builder", "theory"),
    "solver": (QUESTION, "theory", "structure"),
    "answer": (QUESTION, "theory", RESULT),
}
"""The agents in order, and what each reads."""
_ACTING = ("solver", "answer")


def team(inner: Policy) -> Pipeline:
    """The six agents over `inner`."""
    folder = Path(__file__).parent
    roles = [
        Role(name, (folder / f"{name}.jinja").read_text(encoding="utf-8"), reads, acts=name in _ACTING)
        for name, reads in _READS.items()
    ]
    return Pipeline("magts", inner, roles)
