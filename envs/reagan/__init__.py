"""ReaGAN (arXiv 2508.00429): every node of a text-attributed graph is an agent that plans, remembers and predicts."""
