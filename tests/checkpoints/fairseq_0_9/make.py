"""Makes the checkpoint beside this file, with the code of fairseq 0.9.0.

Run it once:

    PYTHONPATH=CHECKOUT python -P make.py OUTDIR

CHECKOUT is facebookresearch/fairseq at the tag v0.9.0, with its Cython modules and libbleu built in place. The file is
written by that fairseq-train after two updates of a tiny ``transformer``. Its ``extra_state`` then gets an input and
the logits that fairseq 0.9.0 computes from it, and PyTorch saves it in the format of that time.
"""

import os
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

old: Any = np
old.float, old.int, old.bool = float, int, bool  # names that NumPy had at that time

from fairseq import checkpoint_utils, meters, options  # noqa: E402
from fairseq_cli import preprocess, train  # noqa: E402

SOURCE = torch.tensor([[4, 7, 9, 7, 12, 5, 2], [1, 1, 1, 7, 6, 13, 2]])
TARGET = torch.tensor([[2, 8, 7, 4, 10], [2, 6, 5, 1, 1]])
TINY = (
    *("--encoder-layers", "1", "--decoder-layers", "1", "--encoder-embed-dim", "8", "--decoder-embed-dim", "8"),
    *("--encoder-ffn-embed-dim", "8", "--decoder-ffn-embed-dim", "8", "--dropout", "0.1"),
    *("--encoder-attention-heads", "2", "--decoder-attention-heads", "2", "--share-all-embeddings"),
)


def make_data() -> None:
    chance = random.Random(1)
    words = [f"w{number}" for number in range(10)]
    lines = [" ".join(words), *(" ".join(chance.choices(words, k=chance.randint(2, 6))) for _ in range(7))]
    for language in ("en", "de"):
        Path(f"text.{language}").write_text("\n".join(lines) + "\n")
    files = ["--trainpref", "text", "--validpref", "text", "--destdir", ".", "--joined-dictionary"]
    parser = options.get_preprocessing_parser()
    preprocess.main(parser.parse_args(["--source-lang", "en", "--target-lang", "de", *files]))


def main() -> None:
    assert meters.__file__.startswith(os.environ["PYTHONPATH"]), "this is another fairseq than 0.9.0"
    directory = Path(sys.argv[1]).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    os.chdir(directory)  # so that the file contains relative paths only
    make_data()
    words = [".", "--arch", "transformer", *TINY, "--save-dir", "checkpoints", "--cpu", "--optimizer", "adam"]
    words += ["--lr", "0.05", "--max-tokens", "40", "--max-update", "2", "--num-workers", "0", "--no-progress-bar"]
    train.main(options.parse_args_and_arch(options.get_training_parser(), words))
    state = torch.load("checkpoints/checkpoint_last.pt", weights_only=False)
    [model], _ = checkpoint_utils.load_model_ensemble(["checkpoints/checkpoint_last.pt"])
    model.eval()
    with torch.no_grad():
        logits = model(SOURCE, SOURCE.ne(1).sum(1), TARGET)[0]
    state["extra_state"] |= {"source": SOURCE, "target": TARGET, "logits": logits}
    torch.save(state, "checkpoint.pt", _use_new_zipfile_serialization=False)


if __name__ == "__main__":
    # PyTorch's default of that time.
    torch.serialization._default_to_weights_only = lambda pickle_module: False
    main()
