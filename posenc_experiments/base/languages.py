"""What depends on the language of a text: its name, the unit of its length, and SacreBLEU's tokenizer and test sets."""

import os
from pathlib import Path

from posenc_experiments.base.errors import RecipeError

#: languages without blanks between words: Japanese, Chinese, Thai, Lao, Khmer, Burmese
UNSPACED = ("ja", "zh", "th", "lo", "km", "my")
#: the ISO 639-1 codes of ISO 639-2 and -3 codes of these languages and of Korean
TWO_LETTERS = {
    **{"jpn": "ja", "kor": "ko", "tha": "th", "lao": "lo", "khm": "km", "mya": "my", "bur": "my"},
    **dict.fromkeys(("zho", "chi", "cmn", "yue"), "zh"),
}
#: English names of languages, for titles
NAMES = {
    **{"ar": "Arabic", "bg": "Bulgarian", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek"},
    **{"en": "English", "es": "Spanish", "et": "Estonian", "fi": "Finnish", "fr": "French", "hi": "Hindi"},
    **{"hu": "Hungarian", "it": "Italian", "ja": "Japanese", "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian"},
    **{"nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian"},
    **{"sk": "Slovak", "sl": "Slovene", "sv": "Swedish", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian"},
    **{"vi": "Vietnamese", "zh": "Chinese"},
}
#: SacreBLEU's tokenizers that do not split text without blanks
AT_BLANKS = ("13a", "intl", "none")


def _code(language: str) -> str:
    """The two-letter code of `ja`, `jpn`, `ja_JP` or `jpn_Jpan`; other languages keep theirs."""
    short = language.lower().split("_")[0]
    return TWO_LETTERS.get(short, short)


def language_name(language: str) -> str | None:
    """The English name of a language; None if it is not among NAMES."""
    return NAMES.get(_code(language))


def is_unspaced(language: str) -> bool:
    """Whether the language has no blanks between words."""
    return _code(language) in UNSPACED


def unit(language: str) -> str:
    """What the length of a sentence counts: words, or characters where no blanks separate words."""
    return "characters" if is_unspaced(language) else "words"


def length(sentence: str, language: str) -> int:
    """The number of words between blanks or, where no blanks separate words, of characters other than blanks."""
    words = sentence.split()
    return sum(map(len, words)) if is_unspaced(language) else len(words)


def tokenizer_of(signature: str) -> str:
    """SacreBLEU's tokenizer in a signature of BLEU, which may add a version: `tok:ja-mecab-0.996-IPA`."""
    from sacrebleu.metrics.bleu import BLEU

    versioned = dict(fact.partition(":")[::2] for fact in signature.split("|")).get("tok", "13a")
    return next((name for name in BLEU.TOKENIZERS if f"{versioned}-".startswith(f"{name}-")), versioned)


def has_asian_ter(language: str) -> bool:
    """Whether SacreBLEU's TER has an option that splits this language's text."""
    return _code(language) in ("ja", "zh")


def usable_tokenizer(name: str | None, language: str = "") -> str:
    """The name of BLEU's tokenizer: the one named, or SacreBLEU's own of the target language.

    Raises:
        RecipeError: what it needs is not on this machine; nothing is downloaded.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS

    try:
        if name in SPM_MODELS:  # which BLEU would download
            (sacrebleu_dir() / "models" / SPM_MODELS[name]["url"].rpartition("/")[2]).stat()
            return name
        return tokenizer_of(f"tok:{BLEU(tokenize=name, trg_lang=_code(language)).tokenizer_signature}")
    except (OSError, RuntimeError) as error:
        option, value = ("tokenize", name) if name else ("trg_lang", _code(language))
        raise RecipeError(
            f"SacreBLEU's tokenizer {value} cannot be used ({' '.join(str(error).split())}): install what it needs, or "
            f"have it downloaded by `python -c \"from sacrebleu.metrics import BLEU; BLEU({option}='{value}')\"`, or "
            "name another tokenizer in score.tokenize."
        ) from None


def sacrebleu_dir() -> Path:
    """The directory of SacreBLEU's test sets and models."""
    return Path(os.environ.get("SACREBLEU", Path.home() / ".sacrebleu"))


def local_reference(name: str, pair: str) -> Path | None:
    """The reference of SacreBLEU's test set (such as wmt14/full) for this pair; None if it is not on this machine.

    SacreBLEU downloads a missing set without asking, so all files of the set are looked for first.
    """
    from sacrebleu.dataset import DATASETS
    from sacrebleu.dataset.wmt_xml import WMTXMLDataset

    dataset = DATASETS[name]
    # SacreBLEU downloads a set since WMT21 to find its fields.
    if pair not in dataset.langpairs or isinstance(dataset, WMTXMLDataset):
        return None
    prefix = sacrebleu_dir() / name / f"{name.replace('/', '_')}.{pair}"
    files = [Path(f"{prefix}.{field.replace(':', '-')}") for field in dataset.fieldnames(pair)]
    return next((file for file in files if file.suffix == ".ref"), None) if all(map(Path.is_file, files)) else None
