"""GRAIN on GRIT: read a story, write its graph, let a solver work, answer."""
