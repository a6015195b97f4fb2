"""Graphs: small named ones written by models, and the exact solvers over them."""
