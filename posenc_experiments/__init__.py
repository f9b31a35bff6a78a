"""Experiments with fairseq_posenc: data, training, evaluation and the workflow around them.

This package is separate from the plugin because importing the plugin registers everything with fairseq, which takes
seconds and needs torch. The command line starts without either.
"""
