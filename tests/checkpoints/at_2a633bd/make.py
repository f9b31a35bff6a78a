"""Makes the checkpoints beside this file: run once, in the root of a checkout of commit 2a633bd.

    PYTHONPATH=. python make.py OUTDIR

Each is written by fairseq-train itself after two updates of a tiny model. Its ``extra_state`` then gets the input and
the logits that this commit's code computes from it.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import torch
from fairseq import checkpoint_utils, options
from fairseq_cli import train

import fairseq_posenc  # noqa: F401 - registers the architectures
from fairseq_posenc.encodings import ENCODINGS

SOURCE = torch.tensor([[4, 7, 9, 7, 12, 5, 2], [1, 1, 1, 7, 6, 13, 2]])
TARGET = torch.tensor([[2, 8, 7, 4, 10], [2, 6, 5, 1, 1]])
FEW = ("--max-source-positions", "16", "--max-target-positions", "16")  # keeps the files small
WIDE = ("diet_abs", "diet_abs_lin", "learned", "linformer", "tupe_abs", "tupe_rel")
SEGMENTS = ("--segment-separator", "w3")
CASES: dict[str, tuple[str, ...]] = {
    **{name: (name, *(FEW if name in WIDE else ())) for name in ENCODINGS},
    "shaw-options": ("shaw", "--clipping-distance", "3", "--position-sharing", "head", "--relative-values", "false"),
    "rotary-options": (
        *("rotary", "--rotary-layout", "half", "--rotary-base", "100", "--input-positions", "learned", *FEW),
    ),
    "tupe_rel-options": ("tupe_rel", "--untie-first-token", "true", "--num-buckets", "8", "--max-distance", "17", *FEW),
    "t5-segments": ("t5", *SEGMENTS, "--num-segments", "3", "--position-sharing", "all"),
    "xlnet-segments": ("xlnet", *SEGMENTS, "--segment-vectors", "true", "--query-biases", "false"),
    "shaw-t5": ("shaw", "--target-position-encoding", "t5", "--position-sharing", "head", *SEGMENTS),
    "huang1-rotary": ("rotary", "--source-position-encoding", "huang1", "--max-source-positions", "20"),
    "t5-cross": ("t5", "--cross-attention-positions", "true", "--num-buckets", "16"),
    "diet_abs-cross": ("diet_abs", "--cross-attention-positions", "true", "--position-rank", "3", *FEW),
}
TINY = (
    *("--encoder-layers", "1", "--decoder-layers", "1", "--encoder-embed-dim", "8", "--decoder-embed-dim", "8"),
    *("--encoder-ffn-embed-dim", "8", "--decoder-ffn-embed-dim", "8", "--dropout", "0.1"),
    *("--encoder-attention-heads", "2", "--decoder-attention-heads", "2", "--share-all-embeddings"),
)


def make_data(directory: Path) -> None:
    chance = random.Random(1)
    words = [f"w{number}" for number in range(10)]
    lines = [" ".join(words), *(" ".join(chance.choices(words, k=chance.randint(2, 6))) for _ in range(7))]
    for language in ("en", "de"):
        Path(f"text.{language}").write_text("\n".join(lines) + "\n")
    files = ("--trainpref", "text", "--validpref", "text", "--destdir", str(directory), "--joined-dictionary")
    languages = ("--source-lang", "en", "--target-lang", "de")
    subprocess.run([sys.executable, "-m", "fairseq_cli.preprocess", *languages, *files], check=True)


def make_checkpoint(name: str, encoding: str, *flags: str) -> None:
    words = ["data", "--arch", f"transformer_{encoding}_tiny", *TINY, "--save-dir", "checkpoints", "--cpu"]
    words += ["--optimizer", "adam", "--lr", "0.05", "--max-tokens", "40", "--max-update", "2", "--seed", "1"]
    words += ["--no-save-optimizer-state", "--no-epoch-checkpoints", "--disable-validation", "--num-workers", "0"]
    words += ["--data-buffer-size", "0", "--restore-file", "none.pt", "--source-lang", "en", "--target-lang", "de"]
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, [*words, "--task", "translation", *flags])
    train.main(train.convert_namespace_to_omegaconf(args))
    [model], _ = checkpoint_utils.load_model_ensemble(["checkpoints/checkpoint_last.pt"])
    model.eval()
    with torch.no_grad():
        logits = model(SOURCE, SOURCE.ne(1).sum(1), TARGET)[0]
    state = torch.load("checkpoints/checkpoint_last.pt", weights_only=True)
    state["extra_state"] = {"source": SOURCE, "target": TARGET, "logits": logits}
    torch.save(state, f"{name}.pt")


def main() -> None:
    directory = Path(sys.argv[1]).absolute()
    directory.mkdir(parents=True, exist_ok=True)
    os.chdir(directory)  # so that the files contain relative paths only
    make_data(Path("data"))
    for name, words in CASES.items():
        make_checkpoint(name, *words)


if __name__ == "__main__":
    main()
