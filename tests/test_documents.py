"""Documents of two sentences with a separator, through fairseq's own command lines."""

import pytest

from fairseq_posenc.checkpoints import load_checkpoint
from tests.toy import PACKAGE, SOURCE, binarize, generate, hypotheses, make_corpus, run_fairseq, train

SEPARATOR = "<sep>"
FLAGS = ("--segment-separator", SEPARATOR, "--num-segments", "2", "--cross-attention-positions", "true")


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """A toy corpus with pairs of consecutive lines joined to one line, in both languages."""
    corpus = make_corpus(tmp_path_factory.mktemp("documents") / "text", lines={"train": 400, "valid": 20, "test": 18})
    for path in corpus.iterdir():
        lines = path.read_text().splitlines()
        pairs = zip(lines[::2], lines[1::2], strict=True)
        path.write_text("".join(f"{first} {SEPARATOR} {second}\n" for first, second in pairs))
    return corpus


@pytest.fixture(scope="module")
def data(documents):
    return binarize(documents, documents.parent / "data")


@pytest.fixture(scope="module")
def checkpoint(data, tmp_path_factory):
    directory = tmp_path_factory.mktemp("model")
    train(data, directory, "transformer_diet_rel_tiny", *FLAGS, "--max-update", "60", user_dir=PACKAGE)
    return directory / "checkpoint_last.pt"


def test_documents_train_and_translate_by_every_entry_point(documents, data, checkpoint):
    state = load_checkpoint(checkpoint)["model"]
    tables = [name for name in state if name.endswith("segments.segment_bias")]
    assert len(tables) == 6  # two layers: one table each in the encoder, two in the decoder
    assert all(state[name].shape == (2, 2, 2) for name in tables)
    expected = hypotheses(generate(data, checkpoint, user_dir=PACKAGE).stdout)
    assert sorted(expected) == list(range(9))
    assert sum(SEPARATOR in text.split() for text in expected.values()) > 0
    interactive = run_fairseq(
        "interactive",
        *(data, "--path", checkpoint, "--beam", "2", "--max-len-b", "20", "--cpu"),
        user_dir=PACKAGE,
        stdin=(documents / f"test.{SOURCE}").read_text(),
    )
    assert hypotheses(interactive.stdout) == expected


def test_a_separator_that_is_not_in_the_dictionary_is_refused(data, tmp_path):
    flags = ("--segment-separator", "<doc>")
    run = train(data, tmp_path, "transformer_diet_rel_tiny", *flags, user_dir=PACKAGE, check=False)
    assert run.returncode != 0
    assert "--segment-separator <doc> is not in the source dictionary" in run.stdout + run.stderr
    assert not list(tmp_path.iterdir())
