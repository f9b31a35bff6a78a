"""Attention with a position encoding.

=========================  ===========================================================================================
:mod:`.core`               ``attend``: checks its arguments and computes attention without a model
:mod:`.module`             fairseq's attention modules: projections, and the positions of the current pass
:mod:`.inputs`             what both hand to a backend: the encoding's changes to q, k and v, its bias, the masks
:mod:`.backends`           the implementations of attention, which all compute the same result
:mod:`.key_value_cache`    the cached keys and values of incremental decoding
:mod:`.observing`          shows the logits and weights of every layer to an observer
=========================  ===========================================================================================
"""
