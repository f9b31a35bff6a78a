"""Makes the checkpoints beside this file with the fairseq of this environment; run in the root of the repository.

    PYTHONPATH=. python tests/checkpoints/fairseqs/make.py NAME

fairseq-train writes NAME-stock.pt, by its own Transformer, and NAME-shaw.pt, by the plugin. Their ``extra_state`` then
gets an input and the logits that this fairseq computes from it.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from fairseq import checkpoint_utils, options
from fairseq_cli import train

import fairseq_posenc  # noqa: F401 - registers the architectures
from fairseq_posenc.checkpoints import load_checkpoint
from tests.toy import TINY, binarize, make_corpus

HERE = Path(__file__).resolve().parent
SOURCE = torch.tensor([[4, 7, 9, 7, 12, 5, 2], [1, 1, 1, 7, 6, 13, 2]])
TARGET = torch.tensor([[2, 8, 7, 4, 10], [2, 6, 5, 1, 1]])


def make(name: str, arch: str) -> None:
    words = [
        "data",
        "--arch",
        arch,
        *TINY,
        "--dropout",
        "0",
        "--save-dir",
        name,
        "--cpu",
        "--optimizer",
        "adam",
        "--lr",
        "0.05",
    ]
    words += ["--max-tokens", "40", "--max-update", "2", "--no-save-optimizer-state", "--no-epoch-checkpoints"]
    words += ["--disable-validation", "--num-workers", "0", "--data-buffer-size", "0"]
    args = options.parse_args_and_arch(options.get_training_parser(), [*words, "--task", "translation"])
    train.main(train.convert_namespace_to_omegaconf(args))
    [model], _ = checkpoint_utils.load_model_ensemble([f"{name}/checkpoint_last.pt"])
    with torch.no_grad():
        logits = model.train()(SOURCE, SOURCE.ne(1).sum(1), TARGET)[0]  # not 0.12.2's own path of evaluation
    state = load_checkpoint(f"{name}/checkpoint_last.pt")
    torch.save(
        {**state, "extra_state": {"source": SOURCE, "target": TARGET, "logits": logits}}, HERE / f"{Path(name).name}.pt"
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)  # so that the files contain relative paths only
        binarize(make_corpus("text"), "data")
        for language in ("en", "de"):
            shutil.copy(f"data/dict.{language}.txt", HERE)
        for kind, arch in (("stock", "transformer_tiny"), ("shaw", "transformer_shaw_tiny")):
            make(f"{sys.argv[1]}-{kind}", arch)


if __name__ == "__main__":
    main()
