"""Benchmarks speed and memory of position encodings against stock fairseq; ``fairseq-posenc benchmark``.

The speed of a machine varies, so results are ratios to stock fairseq within one process. In every round each model does
the same work, in rotating order, and the ratio to stock is computed for each round.
"""
