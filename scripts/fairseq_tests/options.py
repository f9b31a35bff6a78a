"""Tests of fairseq's options that its own tests do not cover, in the style of these tests.

They name stock's architectures, which substituted.py replaces by the encoding's. Each test's docstring is its title in
the table.
"""

import multiprocessing
import os
import sys
import tempfile
import unittest
from io import StringIO
from typing import Any

import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import utils as distributed_utils
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq_cli import generate, interactive, preprocess, validate

from tests import utils  # type: ignore[attr-defined]  # fairseq's

ARCH = "transformer_tiny"
LANGUAGES = ["--source-lang", "in", "--target-lang", "out"]
QUIET = ["--no-progress-bar", "--num-workers", "0"]


def command(parser: Any, main: Any, arguments: list[str], text: str | None = None) -> None:
    """Runs one of fairseq's commands in this process, on ``text`` in place of standard input."""
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, arguments))
    stdin, sys.stdin = sys.stdin, StringIO(text)
    try:
        distributed_utils.call_main(cfg, main)
    finally:
        sys.stdin = stdin


class TestOptions(unittest.TestCase):
    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.data = directory.name
        utils.create_dummy_data(self.data)

    def path(self, name: str) -> str:
        return os.path.join(self.data, name)

    def binarize(self, *flags: str) -> None:
        utils.preprocess_translation_data(self.data, list(flags))

    def train(self, *flags: str, arch: str = ARCH) -> dict[str, Any]:
        """Trains, by default for one epoch, and returns the last checkpoint."""
        utils.train_translation_model(self.data, arch, list(flags))
        directory = flags[flags.index("--save-dir") + 1] if "--save-dir" in flags else self.data
        return torch.load(os.path.join(directory, "checkpoint_last.pt"), weights_only=False)

    def generate(self, *flags: str, path: str | None = None) -> None:
        """Translates with fairseq-generate and fairseq-interactive."""
        path = path or self.path("checkpoint_last.pt")
        search = ["--path", path, "--beam", "2", "--max-len-b", "5", *QUIET, *flags]
        command(
            options.get_generation_parser(),
            generate.main,
            [self.data, "--gen-subset", "test", "--batch-size", "16", *search],
        )
        command(
            options.get_generation_parser(interactive=True),
            interactive.main,
            [self.data, *search, *LANGUAGES],
            text="h e l l o\nw o r l d\n",
        )

    def validate(self, *flags: str, path: str | None = None) -> None:
        path = path or self.path("checkpoint_last.pt")
        arguments = [self.data, "--task", "translation", "--path", path, "--max-tokens", "500", *QUIET, *LANGUAGES]
        command(options.get_validation_parser(), validate.main, [*arguments, *flags])

    def train_all(self, *flags: str) -> None:
        """Trains, resumes for a second epoch, validates and translates."""
        self.binarize()
        self.train(*flags)
        resumed = self.train(*flags, "--max-epoch", "2")
        assert resumed["extra_state"]["train_iterator"]["epoch"] == 3
        self.validate()
        self.generate()

    def test_adaptive_softmax(self) -> None:
        """`--criterion adaptive_loss --adaptive-softmax-cutoff 8,16 --ddp-backend legacy_ddp`"""
        self.train_all(
            *("--criterion", "adaptive_loss", "--adaptive-softmax-cutoff", "8,16", "--ddp-backend", "legacy_ddp")
        )

    def test_adaptive_softmax_tied_weights(self) -> None:
        """adaptive softmax with `--tie-adaptive-weights`"""
        self.train_all(
            *("--criterion", "adaptive_loss", "--adaptive-softmax-cutoff", "8,16", "--ddp-backend", "legacy_ddp"),
            "--tie-adaptive-weights",
        )

    def test_adaptive_softmax_tied_projections(self) -> None:
        """adaptive softmax with `--tie-adaptive-weights --tie-adaptive-proj`"""
        self.train_all(
            *("--criterion", "adaptive_loss", "--adaptive-softmax-cutoff", "8,16", "--ddp-backend", "legacy_ddp"),
            *("--tie-adaptive-weights", "--tie-adaptive-proj"),
        )

    def test_store_ema(self) -> None:
        """`--store-ema --ema-decay 0.9`"""
        self.train_all("--store-ema", "--ema-decay", "0.9")
        state = torch.load(self.path("checkpoint_last.pt"), weights_only=False)
        floating = {name for name, tensor in state["model"].items() if tensor.is_floating_point()}
        assert floating <= set(state["extra_state"]["ema"])

    def test_num_batch_buckets(self) -> None:
        """`--num-batch-buckets 3`"""
        self.train_all("--num-batch-buckets", "3")

    def test_layers_to_keep_in_training(self) -> None:
        """`--encoder-layers-to-keep 1 --decoder-layers-to-keep 0` in training"""
        self.train_all("--encoder-layers-to-keep", "1", "--decoder-layers-to-keep", "0")

    def test_layers_to_keep_in_generation(self) -> None:
        """`--encoder-layerdrop 0.2`, then `--model-overrides` with `encoder_layers_to_keep`"""
        self.binarize()
        self.train("--encoder-layerdrop", "0.2", "--decoder-layerdrop", "0.2")
        self.generate("--model-overrides", "{'encoder_layers_to_keep':'1','decoder_layers_to_keep':'0'}")

    def test_truncate_source(self) -> None:
        """`--truncate-source --max-source-positions 8`"""
        flags = ["--truncate-source", "--max-source-positions", "8"]
        self.binarize()
        self.train(*flags)
        self.validate(*flags)
        self.generate(*flags)

    def test_combine_valid_subsets(self) -> None:
        """`--combine-valid-subsets`"""
        self.combine_valid_subsets()

    def test_combine_valid_subsets_with_upsampling(self) -> None:
        """`--combine-valid-subsets --upsample-primary 1`"""
        self.combine_valid_subsets("--upsample-primary", "1")

    def combine_valid_subsets(self, *flags: str) -> None:
        for side in ("in", "out"):
            os.link(self.path(f"test.{side}"), self.path(f"more.{side}"))
        self.binarize("--validpref", f"{self.path('valid')},{self.path('more')}")
        self.train("--combine-valid-subsets", *flags)
        self.generate()

    def test_amp(self) -> None:
        """`--amp` (on a CPU)"""
        self.train_all("--amp")

    def test_sentence_avg(self) -> None:
        """`--sentence-avg`"""
        self.train_all("--sentence-avg")

    def test_workers(self) -> None:
        """`--num-workers 2`, in every command"""
        self.binarize("--workers", "2")
        self.train("--num-workers", "2")
        self.validate("--num-workers", "2")
        self.generate("--num-workers", "2")

    def test_bmuf(self) -> None:
        """`--use-bmuf`, one process"""
        self.train_all("--use-bmuf")

    def test_bmuf_two_processes(self) -> None:
        """`--use-bmuf`, two processes"""
        self.binarize()
        context = multiprocessing.get_context("fork")
        processes = [context.Process(target=self._train_bmuf, args=(rank,), daemon=True) for rank in (0, 1)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(timeout=300)
        assert [process.exitcode for process in processes] == [0, 0]
        self.generate()

    def _train_bmuf(self, rank: int) -> None:
        self.train(
            *("--use-bmuf", "--global-sync-iter", "2", "--cpu", "--ddp-backend", "legacy_ddp"),
            *("--distributed-backend", "gloo", "--distributed-init-method", f"file://{self.path('rendezvous')}"),
            *("--distributed-world-size", "2", "--distributed-rank", str(rank), "--distributed-no-spawn"),
        )

    def test_language_model_fusion(self) -> None:
        """`--lm-path LM --lm-weight 0.3`"""
        self.binarize()
        self.train()
        language_model = self.path("lm")
        preprocess.main(
            options.get_preprocessing_parser().parse_args(
                [
                    *("--only-source", "--srcdict", self.path("dict.out.txt"), "--destdir", language_model),
                    *("--trainpref", self.path("train.out"), "--validpref", self.path("valid.out")),
                ]
            )
        )
        os.link(self.path("lm/dict.txt"), self.path("dict.txt"))  # where fairseq expects it
        utils.train_language_model(
            language_model, "transformer_lm", ["--decoder-layers", "1", "--decoder-embed-dim", "16"]
        )
        self.generate("--lm-path", self.path("lm/checkpoint_last.pt"), "--lm-weight", "0.3")

    def train_ensemble(self) -> str:
        """Trains a model of this encoding, one of stock and some of other encodings; returns their paths."""
        self.binarize()
        shrunk = ["--encoder-embed-dim", "16", "--decoder-embed-dim", "16", "--encoder-layers", "1"]
        paths = []
        for arch in (ARCH, "transformer_wmt_en_de", "transformer_tupe_rel_tiny", "transformer_diet_abs_lin_tiny"):
            if arch in ARCH_MODEL_REGISTRY:
                self.train("--save-dir", self.path(arch), *shrunk, arch=arch)
                paths.append(self.path(f"{arch}/checkpoint_last.pt"))
        return ":".join(paths)

    def test_ensemble_in_generation(self) -> None:
        """an ensemble of different encodings in fairseq-generate and -interactive"""
        self.generate(path=self.train_ensemble())

    def test_ensemble_in_python(self) -> None:
        """an ensemble of different encodings in `from_pretrained`"""
        paths = [os.path.relpath(path, self.data) for path in self.train_ensemble().split(":")]
        model_class = ARCH_MODEL_REGISTRY["transformer_tiny"]
        ensemble = model_class.from_pretrained(self.data, ":".join(paths), self.data)
        assert len(ensemble.models) == len(paths)
        assert isinstance(ensemble.translate("h e l l o"), str)

    def test_ensemble_in_validation(self) -> None:
        """an ensemble of different encodings in fairseq-validate"""
        self.validate(path=self.train_ensemble())
