"""Frozen evaluation: runner, metrics, tables."""
