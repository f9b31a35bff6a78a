"""Tiny fairseq models, built in this process as fairseq-train builds them."""

from collections.abc import Sequence
from typing import Any

import fairseq.models
import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.data.data_utils import collate_tokens
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


TASK = make_task()
PAD = TASK.source_dictionary.pad()


def build_model(arch: str, *flags: str, seed: int = 1) -> Any:
    """A model of ``arch`` with tiny dimensions, in double precision and evaluation mode."""
    parser = options.get_training_parser()
    arguments = options.parse_args_and_arch(
        parser, ["no-data", "--arch", arch, *TINY, "--dropout", "0", "--task", "translation", *flags]
    )
    torch.manual_seed(seed)
    return fairseq.models.build_model(arguments, TASK).double().eval()


def enlarge_positions(model: Any) -> Any:
    """Makes position parameters large, so that a missing or shifted term changes the output."""
    torch.manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".position_encoding." in name:
                parameter.normal_()
    return model


def sentences(lengths: Sequence[int], seed: int = 5) -> list[torch.Tensor]:
    """Random sentences of these lengths, each with </s>; longer ones contain w3 twice, once at the beginning."""
    generator = torch.Generator().manual_seed(seed)
    first, eos = TASK.source_dictionary.nspecial, TASK.source_dictionary.eos()
    rows = [
        torch.cat([torch.randint(first, first + WORDS, (length,), generator=generator), torch.tensor([eos])])
        for length in lengths
    ]
    for row in rows:
        if len(row) > 4:
            row[0] = row[3] = first + 3
    return rows


def batch(rows: list[torch.Tensor], left_pad: bool) -> torch.Tensor:
    return collate_tokens(rows, PAD, left_pad=left_pad)


def shift_right(rows: list[torch.Tensor]) -> list[torch.Tensor]:
    """Decoder inputs: targets shifted to the right, beginning with </s> as in fairseq."""
    return [row.roll(1) for row in rows]


def model_inputs(
    sources: list[torch.Tensor], targets: list[torch.Tensor], left_pad: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """Padded sources, and the decoder's inputs for these targets."""
    return batch(sources, left_pad), batch(shift_right(targets), left_pad=False)


def make_sample(sources: list[torch.Tensor], targets: list[torch.Tensor]) -> dict[str, Any]:
    """A batch of pairs as fairseq's task makes it, with padding on both sides."""
    source, previous = model_inputs(sources, targets)
    lengths = torch.tensor([*map(len, sources)])
    inputs = {"src_tokens": source, "src_lengths": lengths, "prev_output_tokens": previous}
    return {"net_input": inputs, "target": batch(targets, left_pad=False), "ntokens": sum(map(len, targets))}


def logits(model: Any, source: torch.Tensor, previous: torch.Tensor) -> torch.Tensor:
    return model(source, source.ne(PAD).sum(1), previous)[0]


def gradients(model: Any, *passes: tuple[torch.Tensor, torch.Tensor]) -> tuple[list[torch.Tensor], dict[str, Any]]:
    """The logits of each pass over its inputs, and the gradient of every parameter after one backward for all."""
    torch.manual_seed(7)  # of dropout
    outputs = [logits(model, *inputs) for inputs in passes]
    torch.stack([output.square().sum() for output in outputs]).sum().backward()
    return outputs, {name: parameter.grad for name, parameter in model.named_parameters()}


def translate(model: Any, source: torch.Tensor, beam: int = 4) -> list[list[dict[str, torch.Tensor]]]:
    """Translates with fairseq's own beam search and incremental decoding."""
    generator = SequenceGenerator([model], TASK.target_dictionary, beam_size=beam, max_len_b=12)
    return generator.generate([model], {"net_input": {"src_tokens": source, "src_lengths": source.ne(PAD).sum(1)}})


def token_lists(hypotheses: list[dict[str, torch.Tensor]]) -> list[list[int]]:
    return [hypothesis["tokens"].tolist() for hypothesis in hypotheses]


def log_probabilities(model: Any, source: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """The log-probabilities of one translation's tokens in a full pass."""
    scores = logits(model, source[None], tokens.roll(1)[None])[0].log_softmax(-1)
    return scores.gather(1, tokens[:, None])[:, 0]
