"""AgentGL: search a text-attributed graph through four pools, then classify a node or judge whether two are linked."""
