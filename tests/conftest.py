"""Fixtures for all tests."""

from pathlib import Path

import pytest

#: files whose tests start trainings or other processes, or are very many: `scripts/test.sh --quick` leaves them out
LONG = (
    *("attention/test_backends.py", "benchmark/", "checkpoints/", "export/", "recipes/test_wmt.py"),
    "experiments/analysis/test_page.py",
    *(f"experiments/{name}" for name in ("commands/", "jobs/", "training/", "evaluation/test_parameters.py")),
    *(f"experiments/data/test_{name}.py" for name in ("download", "prepare", "wmt_data")),
    *(
        f"experiments/{name}.py"
        for name in ("experiment/test_check_settings", "experiment/test_frozen", "workflow/test_pipeline")
    ),
    *(
        f"test_{name}.py"
        for name in ("checks", "documents", "entry_points", "fairseq_tests", "lengths", "model", "setup")
    ),
    *(f"test_{name}.py" for name in ("starts", "training")),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    assert [name for name in LONG if not (folder / name).exists()] == []
    for item in items:
        if str(item.path.relative_to(folder)).startswith(LONG):
            item.add_marker(pytest.mark.long)
    # Files are spread over processes in this order: what takes long must not be left for the end.
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real text that stands beside the repository; tests without it are skipped."""
    path = Path(__file__).resolve().parents[2] / "shared"
    if not path.is_dir():
        pytest.skip(f"{path} is not there: no real text to test with")
    return path
