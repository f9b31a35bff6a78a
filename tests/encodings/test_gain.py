"""--bias-gain: a constant factor on learned scalars and learned input positions, which changes how fast they learn and
nothing else.
"""

from typing import Any

import pytest
import torch

from fairseq_posenc import attend, build_encoding
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.encodings.contract.gain import present_scalars
from fairseq_posenc.encodings.contract.registry import has_scalars
from fairseq_posenc.model import PositionMismatch, fine_tuning
from fairseq_posenc.position_record import POSITION_RECORD
from tests.models import build_model, enlarge_positions, logits, model_inputs, sentences
from tests.variants import make_qkv

OPTIONS: dict[str, dict[str, Any]] = {"tupe_rel": {"untie_first_token": True}, "alibi": {"alibi_slopes": "learned"}}
SCALAR = [name for name, cls in ENCODINGS.items() if has_scalars(build_encoding(name, 2, 4, **OPTIONS.get(name, {})))]
HEADS = "--decoder-attention-heads 4"
INPUTS = model_inputs(sentences([7, 4, 2]), sentences([5, 6, 3], seed=6))


def build(name, gain, **options):
    torch.manual_seed(1)
    return build_encoding(name, 2, 16, bias_gain=gain, **OPTIONS.get(name, {}), **options)


@pytest.mark.parametrize("name", SCALAR)
@pytest.mark.parametrize(("gain", "number"), [(1, 1), (3.0, 3), ("auto", 4)])
def test_the_gain_does_not_change_the_initial_function(name, gain, number):
    """The random draws are the same; the gain moves the parameters closer to their neutral value."""
    plain, gained = (build(name, value, num_segments=3) for value in (None, gain))
    for scalar in present_scalars(gained):
        neutral = gained.scalars[scalar]
        expected = neutral + (getattr(plain, scalar) - neutral) / number
        torch.testing.assert_close(getattr(gained, scalar), expected, rtol=1e-6, atol=1e-7)
    expected = plain.segments.segment_bias / number
    torch.testing.assert_close(gained.segments.segment_bias, expected, rtol=1e-6, atol=0)
    if gain == 1:
        assert all(torch.equal(gained.state_dict()[key], tensor) for key, tensor in plain.state_dict().items())
    for encoding in (plain, gained):
        encoding.segments = None  # attention without segments
    qkv = make_qkv(1, 9, dim=16, dtype=torch.float32)
    torch.testing.assert_close(attend(*qkv, gained)[0], attend(*qkv, plain)[0], rtol=1e-5, atol=1e-6)


# Embeddings are 16 wide and heads 8.
@pytest.mark.parametrize(
    "flags", [["transformer_learned_tiny"], ["transformer_t5_tiny", "--input-positions", "learned"]]
)
def test_input_positions_start_as_the_same_vectors(flags):
    """The random draws are the same, also for the rest of the model."""
    plain, gained = build_model(*flags), build_model(*flags, "--bias-gain", "auto")
    for name, tensor in plain.state_dict().items():
        own = gained.state_dict()[name]
        if "embed_positions" in name:
            torch.testing.assert_close(own, tensor / 4, rtol=1e-6, atol=0)
        elif "position_encoding" not in name and name != POSITION_RECORD:
            assert torch.equal(own, tensor), name
    torch.testing.assert_close(logits(gained, *INPUTS), logits(plain, *INPUTS), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("trained", "tuned", "message"),
    [
        *(
            (f"{flags} {HEADS} --bias-gain 3", f"{flags} {HEADS} --bias-gain auto", "_gain")
            for flags in (
                *("t5_tiny", "huang1_tiny", "kerple_log_tiny", "learned_tiny", "alibi_tiny --alibi-slopes two-sided"),
                "tupe_rel_tiny --untie-first-token true --segment-separator w3",
                "nopos_tiny --target-position-encoding diet_rel --cross-attention-positions true",
                "t5_tiny --input-positions learned",
                "sinusoidal_tiny --target-position-encoding learned",
            )
        ),
        (
            *("tiny --encoder-learned-pos --decoder-learned-pos", "learned_tiny --bias-gain auto"),
            r"trained with other positions \(stock fairseq\)",
        ),
        ("t5_tiny", "t5_tiny --urpe true", '"urpe": true'),
    ],
)
def test_fine_tuning_starts_from_the_function_of_the_trained_model(trained, tuned, message):
    """Without fine-tuning, the checkpoint is refused."""
    before = enlarge_positions(build_model(*f"transformer_{trained}".split()))
    model = build_model(*f"transformer_{tuned}".split(), seed=2)
    with pytest.raises(PositionMismatch, match=message):
        model.load_state_dict(before.state_dict())
    with fine_tuning():
        model.load_state_dict(before.state_dict())
    torch.testing.assert_close(logits(model, *INPUTS), logits(before, *INPUTS), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["t5", "huang1"])
def test_adam_changes_the_effective_value_by_the_gain_times_as_much(name):
    moved = {}
    for gain in (1.0, 5.0):
        encoding = build(name, gain).double()
        optimizer = torch.optim.Adam(encoding.parameters(), lr=1e-4)
        before = {scalar: encoding.effective(scalar).clone() for scalar in present_scalars(encoding)}
        sum(encoding.effective(scalar).sum() for scalar in before).backward()
        optimizer.step()
        moved[gain] = {scalar: before[scalar] - encoding.effective(scalar) for scalar in before}
    for scalar, distance in moved[1.0].items():
        torch.testing.assert_close(distance, torch.full_like(distance, 1e-4), rtol=1e-3, atol=0)
        torch.testing.assert_close(moved[5.0][scalar], 5 * distance, rtol=1e-3, atol=0)
