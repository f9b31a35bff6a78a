"""--bias-gain: a constant factor on learned scalars and learned input positions, which changes how fast they learn and
nothing else.
"""

import json
import math
from argparse import Namespace
from typing import Any

import pytest
import torch

from fairseq_posenc import attend, build_encoding
from fairseq_posenc.architectures import architecture_name
from fairseq_posenc.checkpoints import CheckpointError, average_checkpoints
from fairseq_posenc.compat import COPIES
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.encodings.contract.gain import present_scalars
from fairseq_posenc.encodings.contract.registry import has_scalars
from fairseq_posenc.model import PositionMismatch, fine_tuning
from fairseq_posenc.signature import SIGNATURE, decode_signature
from tests.models import batch, build_model, enlarge_positions, make_task, sentences, shift_right
from tests.references import bias, factor, numpy

OPTIONS: dict[str, dict[str, Any]] = {"tupe_rel": {"untie_first_token": True}, "alibi": {"alibi_slopes": "learned"}}
SCALAR = [name for name, cls in ENCODINGS.items() if has_scalars(build_encoding(name, 2, 4, **OPTIONS.get(name, {})))]
#: models with learned input positions; embeddings are 16 wide and heads 8
AT_INPUT = [
    ["transformer_learned_tiny"],
    ["transformer_shaw_tiny", "--input-positions", "learned"],
    ["transformer_t5_tiny", "--input-positions", "learned"],
]


def build(name, gain, **options):
    torch.manual_seed(1)
    return build_encoding(name, 2, 16, bias_gain=gain, **OPTIONS.get(name, {}), **options)


def outputs(model):
    task = make_task()
    sources, targets = sentences(task, [7, 4, 2]), sentences(task, [5, 6, 3], seed=6)
    source, previous = batch(task, sources, True), batch(task, shift_right(targets), False)
    return model(source, source.ne(model.encoder.padding_idx).sum(1), previous)[0]


def signature(model):
    return json.loads(decode_signature(model.position_version))


def test_the_encodings_with_learned_scalars():
    assert sorted(SCALAR) == [
        "alibi",
        "diet_rel",
        "gated_t5",
        "huang1",
        "huang2",
        "kerple_log",
        "kerple_power",
        "t5",
        "tupe_rel",
    ]


@pytest.mark.parametrize("name", SCALAR)
@pytest.mark.parametrize("gain", [3.0, 0.1, "auto"])
def test_the_gain_does_not_change_the_initial_function(name, gain):
    """The random draws are the same; the gain moves the parameters closer to their neutral value."""
    torch.manual_seed(2)
    q, k, v = torch.randn(3, 1, 2, 9, 16)
    plain, gained = (build(name, value, num_segments=3) for value in (None, gain))
    number = 4.0 if gain == "auto" else gain
    for scalar in present_scalars(gained):
        theta, neutral = getattr(gained, scalar), gained.scalars[scalar]
        expected = neutral + (getattr(plain, scalar) - neutral) / number
        torch.testing.assert_close(theta, expected, rtol=1e-6, atol=1e-7)
        of_reference = bias if neutral == 0 else factor
        torch.testing.assert_close(gained.effective(scalar).detach().numpy(), of_reference(gained, numpy(theta)))
    expected = plain.segments.segment_bias / number
    torch.testing.assert_close(gained.segments.segment_bias, expected, rtol=1e-6, atol=0)
    for encoding in (plain, gained):
        encoding.segments = None  # attention without segments
    torch.testing.assert_close(attend(q, k, v, gained)[0], attend(q, k, v, plain)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SCALAR)
def test_a_gain_of_1_changes_nothing(name):
    plain, gained = (build(name, value, num_segments=3) for value in (None, 1))
    for module in (gained, gained.segments):
        for scalar in present_scalars(module):
            assert module.effective(scalar) is getattr(module, scalar)
    for key, tensor in plain.state_dict().items():
        assert torch.equal(gained.state_dict()[key], tensor)


@pytest.mark.parametrize("name", SCALAR)
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


@pytest.mark.parametrize("flags", AT_INPUT)
@pytest.mark.parametrize(("gain", "number"), [("3", 3.0), ("0.1", 0.1), ("auto", 4.0)])
def test_input_positions_start_as_the_same_vectors(flags, gain, number):
    """The random draws are the same, also for the rest of the model."""
    plain, gained = build_model(*flags), build_model(*flags, "--bias-gain", gain)
    for name, tensor in plain.state_dict().items():
        own = gained.state_dict()[name]
        if "embed_positions" in name:
            torch.testing.assert_close(own, tensor / number, rtol=1e-6, atol=0)
        elif "position_encoding" not in name and name != SIGNATURE:
            assert torch.equal(own, tensor), name
    torch.testing.assert_close(outputs(gained), outputs(plain), rtol=0, atol=1e-6)


def test_input_positions_with_a_gain_of_1_are_stock_fairseqs():
    stock = build_model("transformer_tiny", "--encoder-learned-pos", "--decoder-learned-pos").float()
    ours = build_model("transformer_learned_tiny", "--bias-gain", "1").float()
    known = [name for name, _ in stock.named_parameters() if name.rpartition(".")[2] not in COPIES]
    for name in known:
        assert torch.equal(ours.state_dict()[name], stock.state_dict()[name]), name
    assert [name for name, _ in ours.named_parameters()] == known
    enlarged = {name: 3 * tensor for name, tensor in stock.state_dict().items()}
    for model in (stock, ours):
        model.load_state_dict(enlarged)
    assert torch.equal(outputs(ours.train()), outputs(stock.train()))


@pytest.mark.parametrize("flags", AT_INPUT)
def test_adam_changes_input_positions_by_the_gain_times_as_much_except_padding(flags):
    moved = {}
    for gain in ("1", "5"):
        model = build_model(*flags, "--bias-gain", gain)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
        tables = [stack.embed_positions for stack in (model.encoder, model.decoder)]
        before = [table.effective("weight").detach().clone() for table in tables]
        outputs(model).logsumexp(-1).sum().backward()
        optimizer.step()
        moved[gain] = [table.effective("weight") - old for table, old in zip(tables, before, strict=True)]
        for table in tables:
            assert not table.weight[table.padding_idx].any()
    for one, five in zip(moved["1"], moved["5"], strict=True):
        reached = one.abs() > 0.99e-4
        assert 0.5 * 5 * 16 < reached.sum() < one.numel()
        torch.testing.assert_close(five[reached], 5 * one[reached], rtol=1e-2, atol=0)


def test_each_effective_vector_is_the_gain_times_the_parameter():
    """In full passes and in incremental decoding; the vector of padding is zero."""
    embed = build_model("transformer_learned_tiny", "--bias-gain", "3").encoder.embed_positions
    tokens = torch.tensor([[5, 6, 7], [1, 5, 6]])
    table = embed.weight
    assert torch.equal(embed(tokens), torch.stack([3 * table[[2, 3, 4]], 3 * table[[1, 2, 3]]]))
    assert not embed(tokens)[1, 0].any()
    assert torch.equal(embed(tokens[:1], incremental_state={}), 3 * table[None, [4]])


@pytest.mark.parametrize("gain", [0, -1, "nan", "inf", "-inf", "large", True, ""])
def test_invalid_gains_are_refused(gain):
    with pytest.raises(ValueError, match=f"^--bias-gain {gain!r}: must be auto or a positive number, not {gain!r}"):
        build_encoding("t5", 2, 4, bias_gain=gain)


@pytest.mark.parametrize(
    "name", [name for name, cls in ENCODINGS.items() if not has_scalars(build_encoding(name, 2, 4))]
)
def test_encodings_without_learned_scalars_refuse_it(name):
    refusal = f"--bias-gain has no meaning for {name}, which learns no scalars in attention: leave"
    with pytest.raises(ValueError, match=refusal):
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


def test_segments_alone_accept_it():
    model = build_model("transformer_shaw_tiny", "--segment-separator", "w3", "--bias-gain", "auto")
    assert model.encoder.layers[0].self_attn.position_encoding.segments.bias_gain == math.sqrt(8)
    assert signature(model)["bias_gain"] == math.sqrt(8)


def test_learned_slopes_record_it():
    found = signature(build_model("transformer_alibi_tiny", "--alibi-slopes", "learned", "--bias-gain", "2"))
    assert found == {"encoding": "alibi", "alibi_slopes": "learned", "bias_gain": 2}


def test_auto_depends_on_the_width_of_each_stack():
    model = build_model(
        *("transformer_t5_tiny", "--target-position-encoding", "diet_rel", "--cross-attention-positions", "true"),
        *("--decoder-attention-heads", "4", "--bias-gain", "auto"),
    )
    assert {layer.self_attn.position_encoding.bias_gain for layer in model.encoder.layers} == {math.sqrt(8)}
    for layer in model.decoder.layers:
        assert layer.self_attn.position_encoding.bias_gain == layer.encoder_attn.position_encoding.bias_gain == 2
    found = signature(model)
    assert (found["bias_gain"], found["target"]["bias_gain"]) == (math.sqrt(8), 2)


def test_only_stacks_with_learned_scalars_record_it():
    found = signature(build_model("transformer_nopos_tiny", "--target-position-encoding", "t5", "--bias-gain", "2"))
    assert found["encoding"] == "nopos"
    assert "bias_gain" not in found
    assert found["target"]["bias_gain"] == 2
    found = signature(build_model("transformer_alibi_tiny", "--target-position-encoding", "t5", "--bias-gain", "2"))
    assert found == {"encoding": "alibi", "target": {"encoding": "t5", "bias_gain": 2}}


def test_the_gain_of_input_positions_is_recorded_separately():
    """With auto it differs from the gain of scalars in the same stack."""
    widths = ["--encoder-embed-dim", "36", "--encoder-attention-heads", "4"]
    assert signature(build_model("transformer_learned_tiny", "--bias-gain", "auto")) == {
        "encoding": "learned",
        "input_gain": 4.0,
    }
    found = signature(build_model(*AT_INPUT[-1], "--bias-gain", "auto", *widths))
    assert (found["bias_gain"], found["input_gain"]) == (3, 6)
    assert (found["target"]["bias_gain"], found["target"]["input_gain"]) == (math.sqrt(8), 4)
    found = signature(build_model(*AT_INPUT[-1], "--bias-gain", "6", *widths))
    assert (found["bias_gain"], found["input_gain"], "target" in found) == (6, 6, False)
    found = signature(build_model("transformer_t5_tiny", "--target-position-encoding", "learned", "--bias-gain", "2"))
    assert found == {"encoding": "t5", "bias_gain": 2, "target": {"encoding": "learned", "input_gain": 2}}


@pytest.mark.parametrize("flags", [["transformer_t5_tiny"], *AT_INPUT])
def test_a_gain_of_1_is_not_recorded(flags):
    assert signature(build_model(*flags, "--bias-gain", "1")) == signature(build_model(*flags))


#: the value of auto for heads of width 4 and embeddings of width 16
AUTO = [("t5", "2"), ("learned", "4")]
HEADS = ["--encoder-attention-heads", "4", "--decoder-attention-heads", "4"]


@pytest.mark.parametrize(("name", "equal"), AUTO)
def test_auto_equals_the_square_root_of_the_width(name, equal):
    arch = architecture_name(name, "tiny")
    auto = enlarge_positions(build_model(arch, "--bias-gain", "auto", *HEADS))
    number = build_model(arch, "--bias-gain", equal, *HEADS, seed=2)
    number.load_state_dict(auto.state_dict())
    assert torch.equal(outputs(number), outputs(auto))


@pytest.mark.parametrize("gains", [([], ["--bias-gain", "2"]), (["--bias-gain", "2"], ["--bias-gain", "3"])])
@pytest.mark.parametrize(("name", "recorded"), [("t5", "bias_gain"), ("learned", "input_gain")])
def test_a_checkpoint_with_another_gain_is_refused(name, recorded, gains):
    trained, wanted = (build_model(architecture_name(name, "tiny"), *flags) for flags in gains)
    with pytest.raises(PositionMismatch, match=rf"trained with other positions .*{recorded}"):
        wanted.load_state_dict(trained.state_dict())


@pytest.mark.parametrize(("name", "equal"), AUTO)
def test_checkpoints_are_averaged_if_their_gains_are_equal(tmp_path, name, equal):
    for gain in ("auto", equal, "3"):
        model = build_model(architecture_name(name, "tiny"), "--bias-gain", gain, *HEADS)
        state = {"cfg": {"model": Namespace(arch="any", bias_gain=gain)}, "model": model.state_dict()}
        torch.save(state, tmp_path / f"{gain}.pt")
    average_checkpoints([tmp_path / "auto.pt", tmp_path / f"{equal}.pt"], tmp_path / "mean.pt")
    with pytest.raises(CheckpointError, match="differ in position_version"):
        average_checkpoints([tmp_path / "auto.pt", tmp_path / "3.pt"], tmp_path / "other.pt")


@pytest.mark.parametrize(
    "gains",
    [
        ([], ["--bias-gain", "auto"]),
        (["--bias-gain", "auto"], []),
        (["--bias-gain", "3"], ["--bias-gain", "0.5"]),
    ],
)
@pytest.mark.parametrize(
    ("name", "flags"),
    [
        *((name, []) for name in SCALAR if name != "alibi"),
        ("alibi", ["--alibi-slopes", "learned"]),
        ("alibi", ["--alibi-slopes", "two-sided"]),
        ("tupe_rel", ["--untie-first-token", "true", "--segment-separator", "w3"]),
        ("nopos", ["--target-position-encoding", "diet_rel", "--cross-attention-positions", "true"]),
        ("learned", []),
        ("t5", ["--input-positions", "learned"]),
        ("sinusoidal", ["--target-position-encoding", "learned"]),
    ],
)
def test_fine_tuning_from_another_gain_starts_from_the_same_function(name, flags, gains):
    arch = architecture_name(name, "tiny")
    heads = ["--decoder-attention-heads", "4"]
    trained = enlarge_positions(build_model(arch, *flags, *heads, *gains[0]))
    tuned = build_model(arch, *flags, *heads, *gains[1], seed=2)
    with fine_tuning():
        tuned.load_state_dict(trained.state_dict())
    torch.testing.assert_close(outputs(tuned), outputs(trained), rtol=0, atol=1e-9)
    assert signature(tuned) != signature(trained)


def test_fine_tuning_from_stock_fairseq_starts_from_its_function():
    stock = build_model("transformer_tiny", "--encoder-learned-pos", "--decoder-learned-pos")
    gain = ["--bias-gain", "auto"]
    with pytest.raises(PositionMismatch, match=r"trained with other positions \(stock fairseq\)"):
        build_model("transformer_learned_tiny", *gain).load_state_dict(stock.state_dict())
    tuned = build_model("transformer_learned_tiny", *gain, seed=2)
    with fine_tuning():
        tuned.load_state_dict(stock.state_dict())
    torch.testing.assert_close(outputs(tuned), outputs(stock), rtol=0, atol=1e-12)
