"""Classification scores in which an unanswered question is wrong, and absent classes are not averaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from typing import NamedTuple


class Classification(NamedTuple):
    """Scores of single-label answers. All are taken over all rows; unanswered ones count as wrong."""

    accuracy: float
    unanswered_rate: float
    macro_f1: float
    """Mean F1 over the classes that occur in gold."""
    absent: list[Hashable]
    """Legal labels that do not occur in gold, in their given order."""


class Multilabel(NamedTuple):
    """Scores of answers that are sets of labels."""

    exact: float
    micro_f1: float
    macro_f1: float
    """Mean F1 over the classes that occur in gold."""
    absent: list[Hashable]


def classification(
    gold: Sequence[Hashable], predicted: Sequence[Hashable | None], labels: Sequence[Hashable]
) -> Classification:
    """Score single-label answers; None means unanswered and is no class, while 0 and "" may be classes.

    Raises:
        ValueError: no rows, rows that do not pair up, or a gold label outside `labels`.
    """
    _check(gold, predicted, set(gold), labels)
    right = sum(said is not None and said == true for true, said in zip(gold, predicted, strict=True))
    answers = [frozenset() if said is None else frozenset((said,)) for said in predicted]
    present, absent = _presence([{true} for true in gold], labels)
    return Classification(
        right / len(gold),
        sum(said is None for said in predicted) / len(gold),
        _macro_f1([{true} for true in gold], answers, present),
        absent,
    )


def multilabel(
    gold: Sequence[Collection[Hashable]], predicted: Sequence[Collection[Hashable] | None], labels: Sequence[Hashable]
) -> Multilabel:
    """Score answers that are sets of labels; None (unanswered) never equals a set, not even the empty one.

    Raises:
        ValueError: as `classification`.
    """
    _check(gold, predicted, {label for row in gold for label in row}, labels)
    answers = [set(said) if said is not None else set() for said in predicted]
    truths = [set(row) for row in gold]
    exact = sum(
        said is not None and answer == true for said, answer, true in zip(predicted, answers, truths, strict=True)
    )
    hits = sum(len(true & answer) for true, answer in zip(truths, answers, strict=True))
    present, absent = _presence(truths, labels)
    return Multilabel(
        exact / len(gold),
        _f1(hits, sum(map(len, truths)), sum(map(len, answers))),
        _macro_f1(truths, answers, present),
        absent,
    )


def _check(
    gold: Sequence[object], predicted: Sequence[object], used: set[Hashable], labels: Sequence[Hashable]
) -> None:
    if not gold or len(gold) != len(predicted):
        raise ValueError(f"expected one answer per gold row, got {len(predicted)} answers for {len(gold)} rows")
    if foreign := used - set(labels):
        raise ValueError(f"expected gold labels out of {list(labels)}, got {sorted(map(repr, foreign))}")


def _presence(
    truths: Sequence[Collection[Hashable]], labels: Sequence[Hashable]
) -> tuple[list[Hashable], list[Hashable]]:
    found = {label for row in truths for label in row}
    return [label for label in labels if label in found], [label for label in labels if label not in found]


def _macro_f1(
    truths: Sequence[Collection[Hashable]], answers: Sequence[Collection[Hashable]], present: Sequence[Hashable]
) -> float:
    true = Counter(label for row in truths for label in row)
    said = Counter(label for row in answers for label in row)
    hits = Counter(label for row, answer in zip(truths, answers, strict=True) for label in row if label in answer)
    scores = [_f1(hits[label], true[label], said[label]) for label in present]
    return sum(scores) / len(scores) if scores else 0.0


def _f1(hits: int, true: int, said: int) -> float:
    return 2 * hits / (true + said) if true + said else 0.0
