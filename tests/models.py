"""Tiny fairseq models, built in this process as fairseq-train builds them."""

from typing import Any

import fairseq.models
import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationConfig, TranslationTask

import fairseq_posenc  # noqa: F401 - registers the architectures
from tests.toy import TINY

WORDS = 12


def make_task() -> TranslationTask:
    dictionary = Dictionary()
    for number in range(WORDS):
        dictionary.add_symbol(f"w{number}")
    return TranslationTask(TranslationConfig(), dictionary, dictionary)


def build_model(arch: str, *flags: str, seed: int = 1) -> Any:
    """A model of ``arch`` with tiny dimensions, in double precision and evaluation mode."""
    parser = options.get_training_parser()
    arguments = options.parse_args_and_arch(
        parser, ["no-data", "--arch", arch, *TINY, "--dropout", "0", "--task", "translation", *flags]
    )
    torch.manual_seed(seed)
    return fairseq.models.build_model(arguments, make_task()).double().eval()


def enlarge_positions(model: Any) -> Any:
    """Makes position parameters large, so that a missing or shifted term changes the output."""
    torch.manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".position_encoding." in name:
                parameter.normal_()
    return model


def sentences(task: TranslationTask, lengths: list[int], seed: int = 5) -> list[torch.Tensor]:
    """Random sentences of these lengths, each with </s>; longer ones contain w3 twice, once at the beginning."""
    generator = torch.Generator().manual_seed(seed)
    first, eos = task.source_dictionary.nspecial, task.source_dictionary.eos()
    found = [
        torch.cat([torch.randint(first, first + WORDS, (length,), generator=generator), torch.tensor([eos])])
        for length in lengths
    ]
    for sentence in found:
        if len(sentence) > 4:
            sentence[0] = sentence[3] = first + 3
    return found


def batch(task: TranslationTask, rows: list[torch.Tensor], left_pad: bool) -> torch.Tensor:
    width = max(map(len, rows))
    padded = torch.full((len(rows), width), task.source_dictionary.pad())
    for padding, row in zip(padded, rows, strict=True):
        padding[width - len(row) :] = row if left_pad else padding[width - len(row) :]
        if not left_pad:
            padding[: len(row)] = row
    return padded


def shift_right(rows: list[torch.Tensor]) -> list[torch.Tensor]:
    """Decoder inputs: targets shifted to the right, beginning with </s> as in fairseq."""
    return [torch.cat([row[-1:], row[:-1]]) for row in rows]


def translate(model: Any, task: TranslationTask, source: torch.Tensor, beam: int = 4, **options_: Any) -> list[Any]:
    """Translates with fairseq's own beam search and incremental decoding."""
    generator = SequenceGenerator([model], task.target_dictionary, beam_size=beam, max_len_b=12, **options_)
    lengths = source.ne(task.source_dictionary.pad()).sum(1)
    return generator.generate([model], {"net_input": {"src_tokens": source, "src_lengths": lengths}})
