"""Settings that fairseq evaluates: their names, the literals that are accepted, and that all else is refused."""

import re
from pathlib import Path

import fairseq
import pytest

from fairseq_posenc.checkpoints.literals import EVALUATED, is_literal

FAIRSEQ = Path(fairseq.__file__).parent
#: settings of fairseq's fconv, wav2vec 2.0, lamb and wer_args, as in checkpoints
PUBLISHED = (
    *("[(512, 10, 5)] + [(512, 3, 2)] * 4 + [(512,2,2)]", "[True] * 3 + [False]", "(0.9, 0.999)", "('a.bin', 2, -1)"),
    *(" [10000,20000]", "True", "None", "1", "-1.5", "1e-3", "{'a': [1]}"),
)
HOSTILE = (
    *("__import__('os').mkdir('ran')", "[mkdir]", "(lambda: 1)()", "[x for x in (1,)]", "[1][0]", "f'{1}'", "2 ** 9"),
    *("[0] * 10**12", "[*range(9)]", "''.join", "[" * 10000, "-" * 50000 + "1", "", "a b", "\0"),
)


@pytest.mark.parametrize("text", PUBLISHED)
def test_literals_of_published_models_are_accepted(text: str) -> None:
    assert is_literal(text)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:20])
def test_what_names_or_calls_anything_is_no_literal(text: str) -> None:
    assert not is_literal(text)


def test_every_setting_that_fairseq_evaluates_is_known() -> None:
    """Calls of eval without a setting are listed with their file, so that the test detects new ones."""
    settings, others = set(), set()
    for path in FAIRSEQ.rglob("*.py"):
        for call, argument in re.findall(
            r"(?<![\w.])(?:(?:utils|options)\.)?(eval|eval_str_list|eval_str_dict|eval_bool)\(\s*([^(),]*)",
            path.read_text(),
        ):
            setting = re.fullmatch(r"(?:self\.)?(?:\w*cfg|args)\.(\w+)\s*", argument)
            if setting:
                settings.add(setting[1])
            elif "examples" not in path.parts:
                others.add((path.name, call, argument))
    assert {"adam_betas", "encoder_layers", "adaptive_softmax_cutoff"} <= settings
    assert settings <= EVALUATED
    assert others == {
        ("raw_audio_dataset.py", "eval", "feature_encoder_spec"),  # in EVALUATED under this name
        ("multihead_attention.py", "eval_str_dict", "xformers_att_config"),  # in EVALUATED under this name
        ("codedataset.py", "eval", "line.strip"),  # data, not in checkpoints
        *(("lightconv.py", "eval_str_list", "x"), ("lightconv_lm.py", "eval_str_list", "x")),  # the user's flags
        ("multilingual_data_manager.py", "eval_str_dict", "uf"),  # the user's flags
        *(("utils.py", "eval", "x"), *(("utils.py", f"eval_{kind}", "x") for kind in ("str_list", "str_dict", "bool"))),
        ("utils.py", "eval_str_list", "x"),  # in dataclass, by literal_eval
    }
