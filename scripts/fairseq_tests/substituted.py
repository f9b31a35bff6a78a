"""Runs unit tests of fairseq with another Transformer in place of stock's, for run_fairseq_tests.py.

python -P substituted.py ENCODING REPORT.json TEST...

ENCODING is one of the plugin's; or "stock", fairseq alone; or "plugin", stock's architectures with the plugin loaded.
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
# The architectures that give way, and the size of Transformer that comes in their place. Where fairseq's tests train
# its small convolutional model, they are about something else: updates, limits, ways to search, resuming.
SIZES = {
    "transformer": "wmt_en_de",
    "transformer_iwslt_de_en": "iwslt_de_en",
    "transformer_tiny": "tiny",
    "fconv_iwslt_de_en": "tiny",
}


class Substitution:
    """Puts an encoding's architectures where tests name stock's, and knows whether it did so."""

    def __init__(self, encoding: str) -> None:
        self.loads_plugin = encoding != "stock"
        self.encoding = None if encoding in ("stock", "plugin") else encoding
        self.happened = False

    def architecture(self, size: str) -> str:
        return f"transformer_{size}" if self.encoding is None else f"transformer_{self.encoding}_{size}"

    def arguments(self, given: list[str]) -> list[str]:
        """A command's arguments, as a test gives them, with another ``--arch`` and our ``--user-dir``."""
        changed = list(given)
        for index, flag in enumerate(given[:-1]):
            if flag == "--arch" and given[index + 1] in SIZES:
                changed[index + 1] = self.architecture(SIZES[given[index + 1]])
                self.happened = True
        if self.loads_plugin and "--user-dir" not in given:
            changed += ["--user-dir", str(PACKAGE)]
        return changed

    def install(self) -> None:
        """For tests that run commands. A test that has a ``--user-dir`` of its own keeps it: ours is loaded already."""
        if self.loads_plugin:
            utils.import_user_module(Namespace(user_dir=str(PACKAGE)))
        parse = options.parse_args_and_arch

        def parse_changed(parser: Any, input_args: list[str], *args: Any, **kwargs: Any) -> Any:
            return parse(parser, self.arguments(input_args), *args, **kwargs)

        options.parse_args_and_arch = parse_changed

    def replace_class(self, module: Any) -> None:
        """For tests that build the class ``TransformerModel`` themselves."""
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
    """One row a test: its name, its outcome, whether a Transformer was substituted, and why it failed."""

    def __init__(self, substitution: Substitution) -> None:
        super().__init__()
        self.substitution = substitution
        self.rows: list[dict[str, str]] = []

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.substitution.happened = False
        # The tests draw their data at random; so all Transformers get the same.
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
    """An error's kind and the first line of what it says, or the line of code that raised it."""
    said = str(error).strip() or traceback.extract_tb(error.__traceback__)[-1].line or ""
    return f"{type(error).__name__}: {said.partition(chr(10))[0].strip()}"


def main(encoding: str, report: str, *names: str) -> None:
    # In the current directory are fairseq's tests and examples, not its package; beside this file are more tests.
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
