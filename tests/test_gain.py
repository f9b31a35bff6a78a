"""--bias-gain: a constant factor on learned scalars, which changes how fast they learn and nothing else."""

import json
import math
from argparse import Namespace

import pytest
import torch

from fairseq_posenc import attend, build_encoding
from fairseq_posenc.architectures import architecture_name
from fairseq_posenc.checkpoints import CheckpointError, average_checkpoints
from fairseq_posenc.describe import DescriptionError, describe
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.export.positions import place_of
from fairseq_posenc.model import PositionMismatch, decode_signature
from tests.models import batch, build_model, enlarge_positions, make_task, sentences, shift_right
from tests.references import bias, factor, numpy

SCALAR = [name for name, cls in ENCODINGS.items() if cls.scalars]
UNTIED = {"tupe_rel": {"untie_first_token": True}}
FINE_TUNED = ["--finetune-from-model", "other.pt"]


def build(name, gain, **options):
    torch.manual_seed(1)
    return build_encoding(name, 2, 16, bias_gain=gain, **UNTIED.get(name, {}), **options)


def outputs(model):
    task = make_task()
    sources, targets = sentences(task, [7, 4, 2]), sentences(task, [5, 6, 3], seed=6)
    source, previous = batch(task, sources, True), batch(task, shift_right(targets), False)
    return model(source, source.ne(model.encoder.padding_idx).sum(1), previous)[0]


def signature(model):
    return json.loads(decode_signature(model.position_version))


def test_the_encodings_with_learned_scalars():
    assert sorted(SCALAR) == ["diet_rel", "huang1", "huang2", "kerple_log", "t5", "tupe_rel"]


@pytest.mark.parametrize("name", SCALAR)
@pytest.mark.parametrize("gain", [3.0, 0.1, "auto"])
def test_at_initialization_the_function_is_the_same(name, gain):
    """The same random draws, then parameters nearer to their neutral value by the gain."""
    torch.manual_seed(2)
    q, k, v = torch.randn(3, 1, 2, 9, 16)
    plain, gained = (build(name, value, num_segments=3) for value in (None, gain))
    number = 4.0 if gain == "auto" else gain
    for scalar, neutral in gained.scalars.items():
        theta = getattr(gained, scalar)
        expected = neutral + (getattr(plain, scalar) - neutral) / number
        torch.testing.assert_close(theta, expected, rtol=1e-6, atol=1e-7)
        of_reference = bias if neutral == 0 else factor
        torch.testing.assert_close(gained.effective(scalar).detach().numpy(), of_reference(gained, numpy(theta)))
    expected = plain.segments.segment_bias / number
    torch.testing.assert_close(gained.segments.segment_bias, expected, rtol=1e-6, atol=0)
    for encoding in (plain, gained):
        encoding.segments = None  # attended to without telling any segment apart
    torch.testing.assert_close(attend(q, k, v, gained)[0], attend(q, k, v, plain)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SCALAR)
def test_a_gain_of_1_changes_nothing(name):
    plain, gained = (build(name, value, num_segments=3) for value in (None, 1))
    for module in (gained, gained.segments):
        for scalar in module.scalars:
            assert module.effective(scalar) is getattr(module, scalar)
    for key, tensor in plain.state_dict().items():
        assert torch.equal(gained.state_dict()[key], tensor)


@pytest.mark.parametrize("name", SCALAR)
def test_adam_moves_what_acts_by_the_gain_times_as_much(name):
    moved = {}
    for gain in (1.0, 5.0):
        encoding = build(name, gain).double()
        optimizer = torch.optim.Adam(encoding.parameters(), lr=1e-4)
        before = {scalar: encoding.effective(scalar).clone() for scalar in encoding.scalars}
        sum(encoding.effective(scalar).sum() for scalar in encoding.scalars).backward()
        optimizer.step()
        moved[gain] = {scalar: before[scalar] - encoding.effective(scalar) for scalar in before}
    for scalar, distance in moved[1.0].items():
        torch.testing.assert_close(distance, torch.full_like(distance, 1e-4), rtol=1e-3, atol=0)
        torch.testing.assert_close(moved[5.0][scalar], 5 * distance, rtol=1e-3, atol=0)


@pytest.mark.parametrize("gain", [0, -1, "nan", "inf", "-inf", "large", True, ""])
def test_what_is_no_gain_is_refused(gain):
    with pytest.raises(ValueError, match=f"^--bias-gain {gain!r}: say auto or a positive number, not {gain!r}"):
        build_encoding("t5", 2, 4, bias_gain=gain)


@pytest.mark.parametrize("name", sorted(set(ENCODINGS) - set(SCALAR)))
def test_it_is_refused_where_no_scalar_is_learned(name):
    with pytest.raises(ValueError, match=f"--bias-gain has no meaning for {name}, which learns no scalars: leave"):
        build_encoding(name, 2, 4, bias_gain=2)


@pytest.mark.parametrize(
    "flags",
    [
        ["transformer_shaw_tiny"],
        ["transformer_shaw_tiny", "--target-position-encoding", "alibi"],
        ["transformer_xlnet_tiny", "--segment-separator", "w3", "--segment-vectors", "true"],
    ],
)
def test_a_model_without_learned_scalars_refuses_it(flags):
    with pytest.raises(ValueError, match=f"--bias-gain has no meaning for {flags[0]}, which learns no scalars"):
        build_model(*flags, "--bias-gain", "1")


def test_it_is_legal_where_segments_alone_have_scalars():
    model = build_model("transformer_shaw_tiny", "--segment-separator", "w3", "--bias-gain", "auto")
    assert model.encoder.layers[0].self_attn.position_encoding.segments.bias_gain == math.sqrt(8)
    assert signature(model)["bias_gain"] == math.sqrt(8)


def test_each_stack_has_the_gain_of_its_own_width():
    model = build_model(
        *("transformer_t5_tiny", "--target-position-encoding", "diet_rel", "--cross-attention-positions", "true"),
        *("--decoder-attention-heads", "4", "--bias-gain", "auto"),
    )
    assert {layer.self_attn.position_encoding.bias_gain for layer in model.encoder.layers} == {math.sqrt(8)}
    for layer in model.decoder.layers:
        assert layer.self_attn.position_encoding.bias_gain == layer.encoder_attn.position_encoding.bias_gain == 2
    found = signature(model)
    assert (found["bias_gain"], found["target"]["bias_gain"]) == (math.sqrt(8), 2)


def test_only_the_stack_that_has_scalars_records_it():
    found = signature(build_model("transformer_nopos_tiny", "--target-position-encoding", "t5", "--bias-gain", "2"))
    assert found["encoding"] == "nopos"
    assert "bias_gain" not in found
    assert found["target"]["bias_gain"] == 2


def test_a_gain_of_1_is_not_recorded():
    assert signature(build_model("transformer_t5_tiny", "--bias-gain", "1")) == signature(
        build_model("transformer_t5_tiny")
    )


def test_auto_is_the_equal_number():
    heads = ["--encoder-attention-heads", "4", "--decoder-attention-heads", "4"]  # of width 4
    auto = enlarge_positions(build_model("transformer_t5_tiny", "--bias-gain", "auto", *heads))
    number = build_model("transformer_t5_tiny", "--bias-gain", "2", *heads, seed=2)
    number.load_state_dict(auto.state_dict())
    assert torch.equal(outputs(number), outputs(auto))


@pytest.mark.parametrize("gains", [([], ["--bias-gain", "2"]), (["--bias-gain", "2"], ["--bias-gain", "3"])])
def test_a_checkpoint_of_another_gain_is_refused(gains):
    trained, wanted = (build_model("transformer_t5_tiny", *flags) for flags in gains)
    with pytest.raises(PositionMismatch, match=r"trained with other positions .*bias_gain"):
        wanted.load_state_dict(trained.state_dict())


def test_checkpoints_are_averaged_if_they_mean_the_same_gain(tmp_path):
    heads = ["--encoder-attention-heads", "4", "--decoder-attention-heads", "4"]  # of width 4
    for gain in ("auto", "2", "3"):
        model = build_model("transformer_t5_tiny", "--bias-gain", gain, *heads)
        state = {"cfg": {"model": Namespace(bias_gain=gain)}, "model": model.state_dict()}
        torch.save(state, tmp_path / f"{gain}.pt")
    average_checkpoints([tmp_path / "auto.pt", tmp_path / "2.pt"], tmp_path / "mean.pt")
    with pytest.raises(
        CheckpointError, match=r"trained with positions.bias_gain = 3.0, .* with positions.bias_gain = 2.0"
    ):
        average_checkpoints([tmp_path / "auto.pt", tmp_path / "3.pt"], tmp_path / "other.pt")


@pytest.mark.parametrize("gains", [([], ["--bias-gain", "auto"]), (["--bias-gain", "3"], ["--bias-gain", "0.5"])])
@pytest.mark.parametrize(
    ("name", "flags"),
    [
        *((name, []) for name in SCALAR),
        ("tupe_rel", ["--untie-first-token", "true", "--segment-separator", "w3"]),
        ("nopos", ["--target-position-encoding", "diet_rel", "--cross-attention-positions", "true"]),
    ],
)
def test_fine_tuning_from_another_gain_starts_from_the_same_function(tmp_path, name, flags, gains):
    arch = architecture_name(name, "tiny")
    heads = ["--decoder-attention-heads", "4"]
    trained = enlarge_positions(build_model(arch, *flags, *heads, *gains[0]))
    tuned = build_model(arch, *flags, *heads, *gains[1], *FINE_TUNED, "--save-dir", str(tmp_path), seed=2)
    tuned.load_state_dict(trained.state_dict())
    torch.testing.assert_close(outputs(tuned), outputs(trained), rtol=0, atol=1e-9)
    assert signature(tuned) != signature(trained)


def test_it_costs_no_parameter():
    plain, gained = (describe("transformer_t5_tiny", flags) for flags in ([], ["--bias-gain", "auto"]))
    assert gained == plain
    with pytest.raises(DescriptionError, match="--bias-gain has no meaning for transformer_shaw_tiny"):
        describe("transformer_shaw_tiny", ["--bias-gain", "auto"])


@pytest.mark.parametrize("in_decoder", [False, True])
@pytest.mark.parametrize("name", ["diet_rel", "t5"])
def test_an_export_has_the_gain_in_its_table(name, in_decoder):
    gained, plain = (build_encoding(name, 2, 16, bias_gain=gain) for gain in ("auto", None))
    with torch.no_grad():
        gained.relative_bias.normal_()
        plain.relative_bias.copy_(4 * gained.relative_bias)
    found, expected = (place_of(encoding, in_decoder, at_input=False) for encoding in (gained, plain))
    assert found.opened_by == expected.opened_by
    assert found.holds.keys() == expected.holds.keys()
    for key, table in expected.holds.items():
        assert (found.holds[key] == table).all()
