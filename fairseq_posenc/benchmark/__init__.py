"""Speed and memory of position encodings beside stock fairseq; ``scripts/benchmark.py`` is its command line.

Machines drift and are shared, so only ratios within one process count: in every round each model does the same work,
in an order that rotates, and its ratio to stock is taken round by round.
"""
