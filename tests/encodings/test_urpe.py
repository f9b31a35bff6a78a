"""URPE: what it starts from, its factors beyond the table, and which layers share them."""

import pytest
import torch

from fairseq_posenc import attend, build_encoding
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.encodings.contract.registry import supports_urpe
from fairseq_posenc.encodings.contract.urpe import FURTHEST
from tests.models import build_model
from tests.references import naive_attention
from tests.variants import make_encoding, make_qkv


@pytest.mark.parametrize("name", [name for name, cls in ENCODINGS.items() if supports_urpe(cls)])
def test_it_starts_as_without_it(name):
    outputs, qkv = [], make_qkv(2, 6)
    for urpe in (False, True):
        torch.manual_seed(1)
        outputs.append(attend(*qkv, build_encoding(name, 2, 4, urpe=urpe).double(), backend="eager")[0])
    assert torch.equal(*outputs)


def test_distances_beyond_the_table_have_its_last_factor():
    encoding, qkv = make_encoding("alibi", {"urpe": True}), make_qkv(1, FURTHEST + 3)
    expected, _ = naive_attention(encoding, *qkv)
    torch.testing.assert_close(attend(*qkv, encoding)[0], torch.from_numpy(expected), rtol=0, atol=1e-10)


def test_layers_of_a_stack_share_the_factors():
    model = build_model("transformer_shaw_tiny", "--urpe", "true")
    layers = [*model.encoder.layers, *model.decoder.layers]
    tables = [layer.self_attn.position_encoding.urpe.factors for layer in layers]
    assert tables[0] is tables[1]
    assert tables[2] is tables[3]
    assert tables[0] is not tables[2]
    assert [float(table.detach().std()) for table in tables] == [0, 0, 0, 0]
