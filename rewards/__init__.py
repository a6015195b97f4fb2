"""Pure functions from (what happened, the truth) to named numbers."""
