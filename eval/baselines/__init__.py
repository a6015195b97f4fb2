"""Node classification without a language model: votes over labelled nodes, and graph neural networks on text."""
