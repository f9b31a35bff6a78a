"""Runs unit tests of fairseq with an encoding's Transformer in place of stock's, for run_fairseq_tests.py.

python -P substituted.py ENCODING REPORT.json TEST...

ENCODING is one of the plugin's, "stock" (fairseq alone), or "plugin" (stock's architectures with the plugin loaded).
"""

import importlib
import json
import os
import random
import sys
import traceback
import unittest
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from fairseq import options, utils
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.transformer import TransformerModel

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parents[1] / "fairseq_posenc"
SEED = 1
# The architectures that are replaced, and the size of the Transformer that replaces them. fairseq's tests that train a
# small convolutional model test something else (updates, limits, search, resuming), so a Transformer may replace it.
SIZES = {
    "transformer": "wmt_en_de",
    "transformer_iwslt_de_en": "iwslt_de_en",
    "transformer_tiny": "tiny",
    "fconv_iwslt_de_en": "tiny",
}


class Substitution:
    """Replaces stock's architectures in tests by an encoding's, and records whether it did so."""

    def __init__(self, encoding: str) -> None:
        self.loads_plugin = encoding != "stock"
        self.encoding = None if encoding in ("stock", "plugin") else encoding
        self.happened = False

    def architecture(self, size: str) -> str:
        return f"transformer_{size}" if self.encoding is None else f"transformer_{self.encoding}_{size}"

    def arguments(self, given: list[str]) -> list[str]:
        """The arguments of a command with the ``--arch`` replaced, and with our ``--user-dir``."""
        changed = list(given)
        for index, flag in enumerate(given[:-1]):
            if flag == "--arch" and given[index + 1] in SIZES:
                changed[index + 1] = self.architecture(SIZES[given[index + 1]])
                self.happened = True
        if self.loads_plugin and "--user-dir" not in given:
            changed += ["--user-dir", str(PACKAGE)]
        return changed

    def install(self) -> None:
        """Replaces architectures in tests that run commands. Loads the plugin, as a test may set ``--user-dir``."""
        if self.loads_plugin:
            utils.import_user_module(Namespace(user_dir=str(PACKAGE)))
        parse = options.parse_args_and_arch

        def parse_changed(parser: Any, input_args: list[str], *args: Any, **kwargs: Any) -> Any:
            return parse(parser, self.arguments(input_args), *args, **kwargs)

        options.parse_args_and_arch = parse_changed

    def replace_class(self, module: Any) -> None:
        """Replaces the class ``TransformerModel`` in tests that build it directly."""
        if getattr(module, "TransformerModel", None) is not TransformerModel:
            return
        architecture = self.architecture(SIZES["transformer"])
        model: Any = TransformerModel
        if self.encoding is not None:
            model = importlib.import_module("fairseq_posenc.model").PositionTransformer

        def build_model(cls: Any, args: Any, task: Any) -> Any:
            self.happened = True
            ARCH_CONFIG_REGISTRY[architecture](args)
            return model.build_model(args, task)

        module.TransformerModel = type("Substitute", (model,), {"build_model": classmethod(build_model)})


class Report(unittest.TestResult):
    """Records a row for each test: name, outcome, whether a Transformer was substituted, and why it failed."""

    def __init__(self, substitution: Substitution) -> None:
        super().__init__()
        self.substitution = substitution
        self.rows: list[dict[str, str]] = []

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.substitution.happened = False
        # The tests use random data; with a fixed seed all Transformers get the same.
        random.seed(SEED)
        torch.manual_seed(SEED)
        self._add(test, "passed", "")

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        self.rows[-1]["substituted"] = "yes" if self.substitution.happened else ""

    def _add(self, test: unittest.TestCase, outcome: str, reason: str) -> None:
        row = {"test": test.id(), "title": test.shortDescription() or "", "outcome": outcome, "substituted": ""}
        if self.rows and self.rows[-1]["test"] == test.id():
            self.rows.pop()
        self.rows.append({**row, "reason": reason})

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self._add(test, "failed", describe(err[1]))

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self._add(test, "failed", describe(err[1]))

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._add(test, "failed", describe(err[1]))

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self._add(test, "skipped", reason)


def describe(error: BaseException) -> str:
    """The type of an error and the first line of its message, or the line of code that raised it."""
    message = str(error).strip() or traceback.extract_tb(error.__traceback__)[-1].line or ""
    return f"{type(error).__name__}: {message.partition(chr(10))[0].strip()}"


def main(encoding: str, report: str, *names: str) -> None:
    # The current directory has fairseq's tests and examples, but not its package; the directory HERE has more tests.
    sys.path[:0] = [os.getcwd(), str(HERE)]
    substitution = Substitution(encoding)
    substitution.install()
    loader = unittest.TestLoader()
    suite = loader.loadTestsFromNames(names)
    if loader.errors:
        sys.exit(str(loader.errors[0]))
    for name, module in list(sys.modules.items()):
        if name.startswith("tests."):
            substitution.replace_class(module)
    result = Report(substitution)
    suite.run(result)
    Path(report).write_text(json.dumps(result.rows, indent=1), encoding="utf-8")
    for test, trace in result.errors + result.failures:
        print(f"== {test.id()}\n{trace}", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
