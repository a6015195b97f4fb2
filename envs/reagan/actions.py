"""What a node can do. Tags and fields are those of the public code, class names those of the paper (2508.00429)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from agl.core import Action
from agl.graphs.naming import NamingError, node_id

InfoType = Literal["text", "label", "both", "all"]


def _ids(given: Any) -> Any:
    """Ids as strings. What can be no id becomes an empty one, which is filtered like any other wrong target."""
    return [_id(one) for one in given] if isinstance(given, list) else given


def _id(given: object) -> str:
    try:
        return node_id(given)
    except NamingError:
        return ""


Targets = Annotated[list[str], BeforeValidator(_ids)]


class LocalAggregation(Action):
    """Read your neighbours: their texts, their labels where known, or both; "all" adds the examples they know."""

    tag: ClassVar[str] = "retrieve"
    target_nodes: Targets = Field(description='["id of a neighbour", ...]')
    info_type: InfoType = Field(default="both", description='"text" | "label" | "both" | "all"')


class GlobalAggregation(Action):
    """Find the most similar texts in the whole graph, linked to you or not, with their labels."""

    tag: ClassVar[str] = "rag_query"
    query: str | int = Field(default="", description='"your own id, or words to look for"')
    top_k: int | float | str | None = Field(default=None, description="number from 1 to 10")


class Broadcast(Action):
    """Send a message to neighbours; they read it in the next layer, with your provisional label if you set one."""

    tag: ClassVar[str] = "broadcast"
    target_nodes: Targets = Field(description='["id of a neighbour", ...]')
    message: str = Field(min_length=1, description='"your words"')


class Predict(Action):
    """State the label of your node; until the last step it is provisional, and neighbours may read it."""

    tag: ClassVar[str] = "update"
    predicted_label: str | int = Field(description='"one of the allowed labels"')


class NoOp(Action):
    """Do nothing in this layer."""

    tag: ClassVar[str] = "no_op"
