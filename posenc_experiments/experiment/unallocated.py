"""Builds the model of a training without data and without allocating it."""

from __future__ import annotations

from argparse import Namespace
from types import SimpleNamespace

import fairseq.models
import torch
from fairseq.data import Dictionary

from fairseq_posenc.errors import FlagError


def build_unallocated(args: Namespace, vocabulary: int, joined: bool = True) -> torch.nn.Module:
    """The model that fairseq-train would build; its parameters have shapes, but no memory.

    Args:
        args: fairseq-train's arguments, with an architecture of this package.
        vocabulary: entries of each language's dictionary, fairseq's four special ones included.
        joined: whether the languages have one dictionary.

    Raises:
        ValueError: no model can be built with these arguments; its text is a sentence, by this package or by fairseq.
        NotImplementedError: the constructor of a module reads values of tensors, which needs memory.
    """
    # fairseq would read these files here, only to fill tensors whose shapes are known.
    args = Namespace(**vars(args) | {"encoder_embed_path": None, "decoder_embed_path": None})
    source, target = (
        numbered_dictionary(size, args.segment_separator) for size in (vocabulary, vocabulary + (not joined))
    )
    task = SimpleNamespace(source_dictionary=source, target_dictionary=target)
    try:
        with torch.device("meta"):
            return fairseq.models.build_model(args, task)
    except NotImplementedError:
        raise
    except (AssertionError, RuntimeError, TypeError, ZeroDivisionError, AttributeError) as error:
        # fairseq and torch raise any of these for values that do not fit together.
        raise FlagError(f"no model can be built with these flags ({type(error).__name__}: {error}).") from error


def numbered_dictionary(size: int, separator: str | None = None) -> Dictionary:
    """A dictionary of `size` entries, which include the separator of segments, if there is one."""
    dictionary = Dictionary()
    words = [f"w{number}" for number in range(size)]
    for word in [*([] if separator is None else [separator]), *words][: size - len(dictionary)]:
        dictionary.add_symbol(word)
    return dictionary
