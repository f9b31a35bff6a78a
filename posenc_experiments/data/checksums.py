"""The checksums of generated text and of the user's own text, which no table lists."""

from posenc_experiments.base.markers import read_json
from posenc_experiments.base.run import Run

CHECKSUMS = "sha256.json"  # beside the files


def checksums(run: Run) -> dict[str, str]:
    """The SHA-256 of each file, by its name; empty before the stage download has run."""
    path = run.download_dir / CHECKSUMS
    return dict(read_json(path)) if path.is_file() else {}
