"""What depends on the language of a text."""

import re
from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.languages import (
    is_unspaced,
    length,
    tokenizer_of,
    unit,
    usable_tokenizer,
)
from posenc_experiments.evaluation.metrics import BLEU, sacrebleu_metric


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("ja", "ja-mecab"),
        ("jpn_Jpan", "ja-mecab"),
        ("zh", "zh"),
        ("zh_TW", "zh"),
        ("ko", "ko-mecab"),
        *((language, "13a") for language in ("de", "th", "zhong", "")),
    ],
)
def test_each_target_language_has_its_tokenizer(language: str, tokenizer: str) -> None:
    assert usable_tokenizer(None, language) == tokenizer


def test_length_counts_characters_where_no_blanks_separate_words() -> None:
    sentence = "京都は 都 です。"
    assert [length(sentence, language) for language in ("ja", "zh", "th", "my", "ko", "en")] == [7, 7, 7, 7, 3, 3]
    assert [unit("ja"), unit("en")] == ["characters", "words"]
    assert not is_unspaced("ko")
    assert length("", "ja") == 0


@pytest.mark.parametrize("name", ["none", "13a", "intl", "char", "zh", "ja-mecab", "ko-mecab"])
def test_a_tokenizer_is_found_in_its_signature(name: str) -> None:
    from sacrebleu.metrics.bleu import BLEU as Metric

    metric = Metric(tokenize=name)
    metric.corpus_score(["a"], [["a"]])
    signature = str(metric.get_signature())
    assert tokenizer_of(signature) == name
    rebuilt = sacrebleu_metric(BLEU, signature)
    rebuilt.corpus_score(["a"], [["a"]])
    assert str(rebuilt.get_signature()) == signature


def test_what_a_tokenizer_lacks_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU", str(tmp_path))
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)  # as if it were not installed
    for name, words in (("ja-mecab", "pip install sacrebleu[ja]"), ("flores200", "models/flores200sacrebleuspm")):
        with pytest.raises(RecipeError, match=f"{name} cannot be used .*{re.escape(words)}") as error:
            usable_tokenizer(name)
        assert "\n" not in str(error.value)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "flores200sacrebleuspm").touch()
    for name in ("flores200", "zh", "13a"):
        usable_tokenizer(name)
