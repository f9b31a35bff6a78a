"""Attention with a position encoding.

=========================  ===========================================================================================
:mod:`.core`               ``attend``: checks its arguments, applies the encoding's ``transform``, calls a backend
:mod:`.module`             fairseq's attention modules: projections and the cache of keys and values around ``attend``
:mod:`.backends`           the implementations of attention, which all compute the same result
:mod:`.key_value_cache`    the cached keys and values of incremental decoding
:mod:`.observing`          shows the logits and weights of every layer to an observer
=========================  ===========================================================================================
"""
