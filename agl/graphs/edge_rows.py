"""Edge rows as files hold them: attribute maps, missing weights, parallel edges. Each is settled by a stated rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from agl.graphs.named import GraphError, Weight, read_weight

Duplicates = Literal["error", "first", "last", "min", "max", "sum"]


def read_rows(
    rows: Iterable[Sequence[Any]],
    *,
    directed: bool = False,
    attribute: str = "weight",
    default: Weight | None = None,
    duplicates: Duplicates = "error",
    coerce_weights: bool = False,
) -> list[tuple[str, str, Weight]]:
    """Weighted edges, one per pair of ends, in order of first appearance; input of `NamedGraph.from_edges`.

    A row is (u, v), (u, v, weight) or (u, v, {attribute: weight, ...}); ids become strings. Without a `default` every
    row must bring its weight. `duplicates` says which weight stays when a pair appears again; undirected, (v, u) is the
    same pair. Rows that agree are never an error.

    Raises:
        GraphError: `missing_weight`, `contradictory_edge`, and those of `read_weight`.
        ValueError: `duplicates` is no known rule.
    """
    if duplicates not in get_args(Duplicates):
        raise ValueError(f"duplicates is one of {', '.join(get_args(Duplicates))}; got {duplicates!r}")
    found: dict[tuple[str, str], tuple[str, str, Weight]] = {}
    for u, v, *rest in rows:
        ends = (str(u), str(v))
        given = rest[0] if rest else None
        value = given.get(attribute) if isinstance(given, Mapping) else given
        if value is None:
            if default is None:
                raise GraphError("missing_weight", f"the edge ({ends[0]},{ends[1]}) has no {attribute}")
            value = default
        weight = read_weight(value, ends, coerce=coerce_weights)
        key = ends if directed or ends[0] <= ends[1] else ends[::-1]
        if key not in found:
            found[key] = (*ends, weight)
            continue
        source, target, old = found[key]
        if duplicates == "error" and old != weight:
            message = f"contradictory weight for ({source},{target}): {old} and {weight}"
            raise GraphError("contradictory_edge", message)
        choices: dict[Duplicates, Weight] = {
            "error": old,
            "first": old,
            "last": weight,
            "min": min(old, weight),
            "max": max(old, weight),
            "sum": old + weight,
        }
        found[key] = (source, target, choices[duplicates])
    return list(found.values())
