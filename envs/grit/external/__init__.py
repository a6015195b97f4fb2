"""Items of other graph benchmarks as GRIT items: G-REAL, NLGraph, GraphInstruct, GraphArena, GraphOmni, GraphQA."""
