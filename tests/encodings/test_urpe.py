"""URPE: where it is allowed, what it starts from, what a checkpoint records, and what analyses make of its weights."""

import pytest
import torch

from fairseq_posenc import attend, build_encoding
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.encodings.contract.registry import supports_urpe
from fairseq_posenc.encodings.contract.urpe import FURTHEST
from fairseq_posenc.model import PositionMismatch, fine_tuning
from tests.models import batch, build_model, make_task, sentences, shift_right
from tests.references import naive_attention

HEADS, DIM, LENGTH = 2, 4, 6


def inputs(length=LENGTH):
    torch.manual_seed(2)
    return torch.randn(3, 2, HEADS, length, DIM, dtype=torch.float64)


@pytest.mark.parametrize("name", [name for name, cls in ENCODINGS.items() if supports_urpe(cls)])
def test_it_starts_as_without_it(name):
    outputs = []
    for urpe in (False, True):
        torch.manual_seed(1)
        outputs.append(attend(*inputs(), build_encoding(name, HEADS, DIM, urpe=urpe).double(), backend="eager")[0])
    assert torch.equal(*outputs)


def test_distances_beyond_the_table_have_its_last_factor():
    encoding, tensors = build_encoding("alibi", HEADS, DIM, urpe=True).double(), inputs(FURTHEST + 3)
    torch.nn.init.normal_(encoding.urpe.factors)
    expected, _ = naive_attention(encoding, *(x[:1, :, :] for x in tensors))
    found, _ = attend(*(x[:1] for x in tensors), encoding)
    torch.testing.assert_close(found, torch.from_numpy(expected), rtol=0, atol=1e-10)


def test_layers_of_a_stack_share_the_factors():
    model = build_model("transformer_shaw_tiny", "--urpe", "true")
    layers = [*model.encoder.layers, *model.decoder.layers]
    tables = [layer.self_attn.position_encoding.urpe.factors for layer in layers]
    assert tables[0] is tables[1]
    assert tables[2] is tables[3]
    assert tables[0] is not tables[2]
    assert [float(table.detach().std()) for table in tables] == [0, 0, 0, 0]


def test_a_model_without_it_becomes_one_with_it_in_fine_tuning_only():
    plain, model = build_model("transformer_t5_tiny"), build_model("transformer_t5_tiny", "--urpe", "true", seed=2)
    with pytest.raises(PositionMismatch, match='"urpe": true'):
        model.load_state_dict(plain.state_dict())
    with fine_tuning():
        model.load_state_dict(plain.state_dict())
    task = make_task()
    rows = sentences(task, [7, 4])
    source, target = batch(task, rows, left_pad=True), batch(task, shift_right(rows), left_pad=False)
    outputs = [each(source, torch.tensor([8, 5]), target)[0] for each in (model, plain)]
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-12)
