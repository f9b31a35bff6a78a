"""Experiments with fairseq_posenc: data, training, evaluation and the workflow around them.

A package of its own, beside the plugin: importing the plugin registers everything with fairseq, which takes seconds
and needs torch; the command line answers without either.
"""
