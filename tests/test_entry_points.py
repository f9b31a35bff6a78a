"""Every entry point of fairseq as users call it: command lines in subprocesses, on a toy corpus."""

import os
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from functools import partial
from subprocess import CompletedProcess

import pytest
import torch

from fairseq_posenc.checkpoints import load_checkpoint
from fairseq_posenc.model import PositionTransformer
from tests import toy
from tests.toy import PACKAGE, SOURCE, binarize, hydra_train, hypotheses, make_corpus, run_fairseq, train

SHAW = "transformer_shaw_tiny"
PENALTY_TASK = "translation_gnmt_penalty"
LINES = {"test": 9, "test1": 20, "test2": 61}


posenc_train, generate = (partial(command, user_dir=PACKAGE) for command in (train, toy.generate))


def log(run: CompletedProcess[str]) -> str:
    return run.stdout + run.stderr


def losses(run: CompletedProcess[str]) -> dict[int, float]:
    return toy.losses(log(run))


def translations(*arguments: object) -> dict[int, str]:
    return hypotheses(generate(*arguments).stdout)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return make_corpus(tmp_path_factory.mktemp("corpus") / "text", lines={"train": 600, "valid": 21, **LINES})


@pytest.fixture(scope="module")
def data(corpus):
    return binarize(corpus, corpus.parent / "data", "--testpref", ",".join(str(corpus / name) for name in LINES))


@pytest.fixture(scope="module")
def shaw(data, tmp_path_factory):
    """The checkpoints of a Shaw model after a few updates, and the output of its training."""
    directory = tmp_path_factory.mktemp("shaw")
    flags = ("--max-update", "6", "--clipping-distance", "4", "--save-interval-updates", "3")
    return directory, losses(posenc_train(data, directory, SHAW, *flags))


@pytest.fixture(scope="module")
def shaw_last(shaw):
    return shaw[0] / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def stock(data, tmp_path_factory):
    """The checkpoints of a stock model after two updates, and the output of its training."""
    directory = tmp_path_factory.mktemp("stock")
    return directory / "checkpoint_last.pt", losses(train(data, directory, "transformer_tiny"))


def test_a_resumed_training_has_the_losses_of_an_uninterrupted_one(data, shaw, tmp_path):
    directory, unbroken = shaw
    assert sorted(unbroken) == [1, 2, 3, 4, 5, 6]
    last, flags = tmp_path / "checkpoint_last.pt", ("--max-update", "6", "--clipping-distance", "4")
    shutil.copy(directory / "checkpoint_1_3.pt", last)
    resumed = losses(posenc_train(data, tmp_path, SHAW, *flags))
    assert resumed == {updates: loss for updates, loss in unbroken.items() if updates > 3}
    ended = last.read_bytes()
    assert losses(posenc_train(data, tmp_path, SHAW, *flags)) == {}, "it was trained to its end already"
    assert last.read_bytes() == ended


def test_bf16_needs_no_tpu(data, shaw, tmp_path):
    half = losses(posenc_train(data, tmp_path, SHAW, "--clipping-distance", "4", "--bf16"))
    assert half[2] == pytest.approx(shaw[1][2], rel=0.02)
    cfg = load_checkpoint(tmp_path / "checkpoint_last.pt")["cfg"]
    assert (cfg["common"]["bf16"], cfg["common"]["tpu"], cfg["distributed_training"]["tpu"]) == (True, False, False)


def test_sinusoidal_has_the_losses_of_stock_fairseq_and_resumes_its_checkpoint(data, stock, tmp_path):
    checkpoint, expected = stock
    assert losses(posenc_train(data, tmp_path, "transformer_sinusoidal_tiny")) == expected
    shutil.copy(checkpoint, tmp_path / "checkpoint_last.pt")
    assert sorted(losses(posenc_train(data, tmp_path, "transformer_sinusoidal_tiny", "--max-update", "3"))) == [3]


def test_a_fine_tuned_model_is_not_fine_tuned_again_when_it_is_loaded(data, stock, tmp_path):
    """Its configuration still has --finetune-from-model, and its save directory may not exist any more."""
    posenc_train(data, tmp_path / "here", SHAW, "--finetune-from-model", stock[0])
    moved = (tmp_path / "here" / "checkpoint_last.pt").rename(tmp_path / "moved.pt")
    run = generate(data, moved, "--model-overrides", "{'clipping_distance': 5}", check=False)
    assert run.returncode != 0
    assert "trained with other positions" in run.stderr


def test_generate_never_loses_a_sentence(data, shaw_last):
    for subset in ("test1", "test2"):
        words = (data, "--path", shaw_last, "--gen-subset", subset, "--beam", "2", "--cpu", "--max-tokens", "500")
        run = run_fairseq("generate", *words, "--required-batch-size-multiple", "8", user_dir=PACKAGE)
        assert sorted(hypotheses(run.stdout)) == list(range(LINES[subset]))
        assert f"Translated {LINES[subset]} sentences" in log(run)


def test_shards_translate_each_sentence_once(data, shaw_last):
    subset, shards = ("--gen-subset", "test1"), ("--num-shards", "2", "--shard-id")
    first, second = (translations(data, shaw_last, *subset, *shards, number) for number in "01")
    assert (len(first), len(second)) == (13, 7)  # two batches, and one
    assert first | second == translations(data, shaw_last, *subset)
    refused = generate(data, shaw_last, *subset, *shards, "2", check=False)
    assert refused.stderr.splitlines()[-1] == "Error: --shard-id 2 with --num-shards 2: it must be 0 to 1."


def test_fp16_on_a_cpu_is_refused_in_a_sentence(data, tmp_path):
    run = posenc_train(data, tmp_path, SHAW, "--fp16", check=False)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1].startswith("Error: --fp16 needs a GPU, and this training runs on a CPU: ")
    for variant in ("--memory-efficient-fp16", "--fp16-no-flatten-grads"):
        posenc_train(data, tmp_path / variant, SHAW, "--fp16", variant)
    state, path = load_checkpoint(tmp_path / variant / "checkpoint_last.pt"), tmp_path / "old.pt"
    state["args"] = Namespace(**vars(state["cfg"]["model"]) | {"fp16": True, "max_update": 2})
    torch.save(state | {"cfg": None}, path)  # as fairseq before 0.10 saved a training on a GPU
    assert len(translations(data, path)) == 9


def test_without_the_plugin_a_checkpoint_ends_in_the_error_that_the_page_explains(data, shaw_last):
    run = toy.generate(data, shaw_last, check=False)
    assert run.returncode != 0
    message = "UnpicklingError: Weights only load failed"
    assert message in run.stderr
    assert message in (PACKAGE.parent / "docs" / "fairseq.md").read_text(encoding="utf-8")


def test_validate_uses_every_pair(data, shaw_last):
    words = (data, "--path", shaw_last, "--task", "translation", "--valid-subset", "valid,test2")
    run = run_fairseq("validate", *words, "--batch-size", "8", "--cpu", "--log-format", "simple", user_dir=PACKAGE)
    assert dict(re.findall(r"valid on '(\w+)' subset \|.* bsz (\d+)", log(run))) == {"valid": "21", "test2": "61"}


def test_every_way_of_generating(data, shaw_last):
    sampled = translations(data, shaw_last, "--sampling", "--sampling-topk", "5", "--nbest", "2", "--seed", "2")
    prefixed, aligned = (
        generate(data, shaw_last, *flags.split()).stdout for flags in ("--prefix-size 2", "--print-alignment hard")
    )
    assert sorted(sampled) == sorted(hypotheses(prefixed)) == sorted(hypotheses(aligned)) == list(range(9))
    for number, text in re.findall(r"^T-(\d+)\t(.*)$", prefixed, re.M):
        assert hypotheses(prefixed)[int(number)].split()[:2] == text.split()[:2]
    assert len(re.findall(r"^A-\d+\t(\d+-\d+ ?)*$", aligned, re.M)) == 9


def test_from_pretrained_in_python(corpus, data, shaw_last):
    model = PositionTransformer.from_pretrained(str(shaw_last.parent), shaw_last.name, str(data))
    translated = model.translate((corpus / "test.en").read_text().splitlines(), beam=2, max_len_b=20)
    assert dict(enumerate(translated)) == translations(data, shaw_last)


def test_the_papers_length_penalty_in_generate_and_interactive(corpus, data, shaw_last):
    """Compares printed scores: H lines have the score in base 2, P lines log2 of each token's probability."""
    flags = ["--lenpen", "0.6", "--nbest", "2"]
    power, wu = (generate(data, shaw_last, *flags, "--task", task).stdout for task in ("translation", PENALTY_TASK))
    for text, penalty in ((power, lambda length: length**0.6), (wu, lambda length: ((5 + length) / 6) ** 0.6)):
        scores = [float(value) for value in re.findall(r"^H-\d+\t(\S+)\t", text, re.M)]
        tokens = [list(map(float, values.split())) for values in re.findall(r"^P-\d+\t(.*)$", text, re.M)]
        assert len(scores) == len(tokens) == 18
        expected = [sum(values) / penalty(len(values)) for values in tokens]
        assert scores == pytest.approx(expected, abs=2e-3)  # tokens are printed with four decimals
    interactive = translate_interactively(data, shaw_last, corpus, *flags, "--task", PENALTY_TASK)
    assert hypotheses(interactive) == hypotheses(wu)
    scores = [re.findall(r"^H-0\t(\S{6})", text, re.M)[0] for text in (interactive, wu)]
    assert scores[0] == scores[1]


def translate_interactively(data, checkpoint, corpus, *flags):
    words = [data, "--path", checkpoint, "--beam", "2", "--max-len-b", "20", "--cpu", *flags]
    lines = (corpus / f"test.{SOURCE}").read_text()
    return run_fairseq("interactive", *words, user_dir=PACKAGE, stdin=lines).stdout


def test_hydra_train_uses_preset_and_flags(data, tmp_path):
    model = "{_name: transformer_shaw_tiny, clipping_distance: 3, encoder_layers: 1}"
    hydra_train(data, tmp_path, model, "optimization.max_update=2")
    state = load_checkpoint(tmp_path / "checkpoint_last.pt")["model"]
    tables = {name: tensor.shape for name, tensor in state.items() if "relative_keys" in name}
    # fairseq's tiny preset has 2 heads, width 64 and 2 layers; the flags set one encoder layer
    assert tables == {
        f"{stack}.self_attn.position_encoding.relative_keys": (2, 7, 32)
        for stack in ("encoder.layers.0", "decoder.layers.0", "decoder.layers.1")
    }
    assert len(translations(data, tmp_path / "checkpoint_last.pt")) == 9


def test_a_named_checkpoint_must_exist(data, shaw_last, tmp_path):
    """fairseq alone would start from random parameters. The training's own last checkpoint may be missing."""
    missing = tmp_path / "missing.pt"
    for flag, path in (("--restore-file", missing), ("--finetune-from-model", shaw_last.parent)):
        run = posenc_train(data, tmp_path / "new", SHAW, flag, path, check=False)
        assert run.returncode != 0
        assert f"{path}, of --restore-file, --finetune-from-model or --continue-once, does not exist" in run.stderr
        assert not list((tmp_path / "new").glob("*.pt"))
    settings = ["optimization.max_update=1", f"checkpoint.restore_file={missing}"]
    run = hydra_train(data, tmp_path / "new", "{_name: transformer_shaw_tiny}", *settings, check=False)
    assert run.returncode != 0
    assert f"{missing}, of --restore-file" in log(run)


@pytest.mark.parametrize(
    "flags",
    [
        ["--memory-efficient-fp16", "--checkpoint-activations", "--encoder-layerdrop", "0.5"],
        ["--amp", "--store-ema", "--ema-decay", "0.9", "--quant-noise-pq", "0.1", "--quant-noise-pq-block-size", "4"],
    ],
    ids=lambda flags: flags[0].lstrip("-"),
)
def test_trains_and_resumes_under(data, tmp_path, flags):
    flags += ["--position-sharing", "layer"]
    first, more = (losses(posenc_train(data, tmp_path, SHAW, "--max-update", last, *flags)) for last in "24")
    assert (sorted(first), sorted(more)) == ([1, 2], [3, 4])
    assert all(loss < 20 for loss in (*first.values(), *more.values()))  # no NaN


def test_two_processes_resume_and_equal_one_with_twice_the_batches(data, shaw_last, tmp_path):
    common = [
        *("--restore-file", shaw_last, "--reset-dataloader", "--clipping-distance", "4", "--max-update", "8"),
        *("--ddp-backend", "legacy_ddp", "--dropout", "0", "--cpu", "--user-dir", PACKAGE),
    ]
    alone = losses(train(data, tmp_path / "one", SHAW, *common, "--update-freq", "2"))
    script = tmp_path / "train.py"
    script.write_text("import sys\nfrom fairseq_cli.train import cli_main\nsys.exit(cli_main())\n")
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", script),
        *(*toy.train_flags(data, tmp_path / "two", SHAW), *common),
        *("--distributed-backend", "gloo", "--distributed-world-size", "2"),
        *("--distributed-init-method", "env://", "--distributed-no-spawn", "--distributed-rank", "-1"),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, env=environment)
    assert run.returncode == 0, run.stderr[-3000:]
    together = losses(run)
    assert sorted(together) == [7, 8]
    assert together == pytest.approx(alone, abs=2e-3)


def test_fine_tunes_from_a_stock_checkpoint(data, stock, shaw_last, tmp_path):
    """With a suffix, a training starts and resumes from files with that suffix only."""
    shutil.copy(shaw_last, tmp_path)
    flags = ["--finetune-from-model", stock[0], "--checkpoint-suffix", "_b"]
    run = posenc_train(data, tmp_path, SHAW, *flags)
    assert "fresh position parameters: decoder.layers.0.self_attn.position_encoding" in log(run)
    # A second start resumes from its own last checkpoint.
    assert sorted(losses(posenc_train(data, tmp_path, SHAW, *flags, "--max-update", "3"))) == [3]
    assert len(translations(data, tmp_path / "checkpoint_last_b.pt")) == 9


def test_resuming_with_other_positions_is_refused(data, shaw_last, tmp_path):
    shutil.copy(shaw_last, tmp_path)
    run = posenc_train(data, tmp_path, SHAW, "--clipping-distance", "5", check=False)
    assert run.returncode != 0
    assert "trained with other positions" in log(run)
    assert (tmp_path / shaw_last.name).read_bytes() == shaw_last.read_bytes()


# Documents of two sentences with a separator

SEPARATOR = "<sep>"


def test_documents_train_and_translate_also_interactively(tmp_path):
    documents = make_corpus(tmp_path / "text", lines={"train": 200, "valid": 20, "test": 18})
    for path in documents.iterdir():
        lines = path.read_text().splitlines()
        pairs = zip(lines[::2], lines[1::2], strict=True)
        path.write_text("".join(f"{first} {SEPARATOR} {second}\n" for first, second in pairs))
    data, last = binarize(documents, tmp_path / "data"), tmp_path / "checkpoint_last.pt"
    flags = ("--segment-separator", SEPARATOR, "--num-segments", "2", "--cross-attention-positions", "true")
    posenc_train(data, tmp_path, "transformer_diet_rel_tiny", *flags)
    state = load_checkpoint(last)["model"]
    tables = [tensor for name, tensor in state.items() if name.endswith("segments.segment_bias")]
    assert [table.shape for table in tables] == 6 * [(2, 2, 2)]  # each layer: one in the encoder, two in the decoder
    expected = translations(data, last)
    assert sorted(expected) == list(range(9))
    assert hypotheses(translate_interactively(data, last, documents)) == expected
