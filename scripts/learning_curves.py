"""Draw the curves of the learning run as one SVG.

    python scripts/learning_curves.py SFT/trainer_state.json GRPO/trainer_state.json docs/learning_run.svg

Each panel is one quantity of the trainers' own logs against the optimiser step, the bold line its mean over five steps.
"""

from __future__ import annotations

import json
import sys
from html import escape
from pathlib import Path

PANELS = (
    ("sft", "loss", "SFT: loss per learned token (nats)"),
    ("sft", "mean_token_accuracy", "SFT: next token right"),
    ("grpo", "reward", "GRPO: reward (Eq. 3, -1 to 2)"),
    ("grpo", "parts/valid", "GRPO: valid episodes"),
    ("grpo", "parts/edge_f1", "GRPO: Edge-F1"),
    ("grpo", "score", "GRPO: right answers"),
)
WIDTH, HEIGHT, LEFT, TOP, ACROSS = 300, 150, 46, 30, 2
SMOOTH = 5

Points = list[tuple[float, float]]


def points(state: Path, key: str) -> Points:
    """(step, value) of one quantity in a trainer_state.json."""
    history = json.loads(state.read_text(encoding="utf-8"))["log_history"]
    return [(entry["step"], float(entry[key])) for entry in history if key in entry]


def smooth(curve: Points) -> Points:
    """Centred mean over at most five steps."""
    half = SMOOTH // 2
    found = []
    for place, (step, _) in enumerate(curve):
        near = [value for _, value in curve[max(0, place - half) : place + half + 1]]
        found.append((step, sum(near) / len(near)))
    return found


def panel(title: str, curve: Points, x: float, y: float) -> str:
    """One chart with its corner at (x, y)."""
    wide, high = WIDTH - LEFT - 14, HEIGHT - TOP - 26
    last = max(step for step, _ in curve)
    low, top = min(value for _, value in curve), max(value for _, value in curve)
    span = (top - low) or 1.0

    def line(data: Points, style: str) -> str:
        places = " ".join(
            f"{x + LEFT + wide * step / last:.1f},{y + TOP + high * (1 - (value - low) / span):.1f}"
            for step, value in data
        )
        return f'<polyline points="{places}" fill="none" {style}/>'

    def label(text: str, at: tuple[float, float], anchor: str) -> str:
        return f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" text-anchor="{anchor}">{escape(text)}</text>'

    frame = f'<rect x="{x + LEFT}" y="{y + TOP}" width="{wide}" height="{high}" fill="none" stroke="#999"/>'
    return "\n".join(
        (
            label(title, (x + LEFT, y + TOP - 8), "start"),
            frame,
            label(f"{top:.3g}", (x + LEFT - 5, y + TOP + 8), "end"),
            label(f"{low:.3g}", (x + LEFT - 5, y + TOP + high), "end"),
            label(f"step {last:g}", (x + LEFT + wide, y + TOP + high + 15), "end"),
            line(curve, 'stroke="#9bb8d8" stroke-width="1"'),
            line(smooth(curve), 'stroke="#1f5fa8" stroke-width="2"'),
        )
    )


def main(sft: Path, grpo: Path, out: Path) -> None:
    """Write the drawing to `out`."""
    states = {"sft": sft, "grpo": grpo}
    drawn = [
        panel(title, points(states[run], key), place % ACROSS * WIDTH, place // ACROSS * HEIGHT)
        for place, (run, key, title) in enumerate(PANELS)
    ]
    size = WIDTH * ACROSS, HEIGHT * -(-len(PANELS) // ACROSS)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" font-family="sans-serif" '
    text = "\n".join((head + 'font-size="11">', '<rect width="100%" height="100%" fill="#fff"/>', *drawn, "</svg>"))
    out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
