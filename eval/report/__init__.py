"""One self-contained HTML page about a run: figures, a filterable list of episodes, and every episode to read."""
