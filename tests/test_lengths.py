"""Sentences longer than in training: each encoding computes the correct result or refuses in one sentence."""

import pytest
import torch

from fairseq_posenc.architectures import architecture_name
from fairseq_posenc.encodings import ENCODINGS
from tests.models import batch, build_model, enlarge_positions, make_task, sentences, shift_right, translate

LIMITS = ("--max-source-positions", "12", "--max-target-positions", "12")


@pytest.fixture(scope="module")
def task():
    return make_task()


# `learned` is fairseq's own module; fairseq's commands check the same limit.
@pytest.mark.parametrize("name", sorted(set(ENCODINGS) - {"learned"}))
def test_only_encodings_with_absolute_tables_refuse_longer_sentences(task, name):
    model, source = build_model(architecture_name(name, "tiny"), *LIMITS), sentences(task, [20])[0][None]
    if "max_positions" in ENCODINGS[name].options:
        with pytest.raises(
            ValueError, match=r"was built for sequences of at most 12 positions, not 21: .*--max-source"
        ):
            model.encoder(source)
    else:
        assert model.encoder(source)["encoder_out"][0].isfinite().all()


@pytest.mark.parametrize("name", ENCODINGS)
def test_any_length_within_the_limit_is_correct_in_a_batch_and_in_incremental_decoding(task, name):
    """Far beyond the default clipping distance and the exact buckets."""
    model = enlarge_positions(build_model(architecture_name(name, "tiny")))
    sources, targets = sentences(task, [150, 3]), sentences(task, [140, 2], seed=6)
    previous = shift_right(targets)
    together, _ = model(batch(task, sources, True), None, batch(task, previous, False))
    alone, _ = model(sources[0][None], None, previous[0][None])
    assert alone.isfinite().all()
    torch.testing.assert_close(together[0], alone[0], rtol=0, atol=1e-7)
    incremental, encoder_out = {}, model.encoder(sources[0][None])
    for t in range(1, len(previous[0]) + 1):
        step, _ = model.decoder(previous[0][None, :t], encoder_out=encoder_out, incremental_state=incremental)
        torch.testing.assert_close(step[0, 0], alone[0, t - 1], rtol=0, atol=1e-6)
    assert translate(model, task, sources[0][None])[0][0]["positional_scores"].isfinite().all()
