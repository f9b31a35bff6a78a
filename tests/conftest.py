"""Fixtures for all tests."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of golden files and real text that stands beside the repository; tests without it are skipped."""
    path = Path(__file__).resolve().parents[2] / "shared"
    if not path.is_dir():
        pytest.skip(f"{path} is not there: no golden files and no real text to test with")
    return path
