"""AGL: language-model agents on graphs, evaluated frozen and trained by reinforcement learning."""

__version__ = "0.1.0"
