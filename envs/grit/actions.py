"""What the agent can do: call the graph tool (GRAIN's prompt table, arXiv 2608.27142) or answer (`agl.core.Answer`)."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from agl.core import Action


class Solve(Action):
    """Call the graph tool: solve one problem on one graph exactly."""

    tag: ClassVar[str] = "graph"
    problem_type: str = Field(description="which problem to solve")
    graph: dict[str, Any] = Field(description="type, data, directed and weighted of the graph")
    parameters: dict[str, Any] = Field(default_factory=dict, description="what the problem needs besides the graph")
