"""Fixtures for all tests."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.toy import binarize, make_corpus

#: files with many tests, or with tests that start trainings or other processes; `scripts/test.sh --quick` skips them
LONG = (
    *("attention/", "checkpoints/", "export/", "recipes/test_wmt.py"),
    *("encodings/test_causality.py", "encodings/test_gain.py", "gpu/"),
    *(f"experiments/{name}/" for name in ("analysis", "commands", "jobs", "training")),
    *(f"experiments/data/test_{name}.py" for name in ("context", "download", "prepare", "wmt_data")),
    *(f"experiments/evaluation/test_{name}.py" for name in ("benchmark", "parameters", "together")),
    "experiments/experiment/test_check_flags.py",
    *(f"experiments/workflow/test_{name}.py" for name in ("continued", "pipeline")),
    *(f"test_{name}.py" for name in ("augmentation", "check_gpu", "checks", "cookbook", "entry_points", "imports")),
    *(f"test_{name}.py" for name in ("live", "model", "packaging", "setup", "starts", "training")),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    assert [name for name in LONG if not (folder / name).exists()] == []
    for item in items:
        if str(item.path.relative_to(folder)).startswith(LONG):
            item.add_marker(pytest.mark.long)
    # pytest-xdist distributes files in this order; long ones must not start last.
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(autouse=True)
def logging_enabled() -> Iterator[None]:
    """Undoes `logging.disable`, which commands call when a test runs them in this process."""
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="session")
def toy_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A binarized toy corpus."""
    directory = tmp_path_factory.mktemp("toy")
    return binarize(make_corpus(directory / "text"), directory / "data")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real text next to the repository; tests that need it are skipped without it."""
    path = Path(__file__).resolve().parents[2] / "shared"
    if not path.is_dir():
        pytest.skip(f"{path} is not there: no real text to test with")
    return path


@pytest.fixture(scope="session")
def kyoto_text(shared: Path) -> Path:
    """The extracted text of the Kyoto corpus; tests that need it are skipped without it."""
    path = shared / "data" / "kyoto"
    if not path.is_dir():
        pytest.skip(f"{path} is not there: no Japanese text to test with")
    return path
