"""Takes the pictures of the documentation from a page of `analyse`: `python docs/data/pictures.py NAME PAGE`.

It needs Chromium. The page is that of Multi30k's experiments in `analyses.py` (`multi30k`), or of the experiments of
Multi30k's `short.yaml` (`short`).
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.experiments.analysis import browser  # noqa: E402

#: of each page: its parts that are pictured, the most of their height that is shown, and the picture
PICTURES = {
    "multi30k": [
        ("by-length", 790, "analysis-by-length.png"),
        ("learned-vectors-by-distance", 1065, "analysis-learned-vectors-by-distance.png"),
        ("learned-scalars-by-distance", 860, "analysis-learned-scalars-by-distance.png"),
    ],
    "short": [("by-length", 790, "lengths-by-length.png")],
}
WIDTH = 920


def main(name: str, page: Path) -> None:
    """Writes the pictures of a page to docs/images/."""
    program = browser.find()
    if program is None:
        sys.exit(browser.MISSING)
    with TemporaryDirectory() as profile, browser.browser(program, Path(profile)) as chromium:
        chromium.open(page.resolve().as_uri(), WIDTH, 900, "light")
        for part, most, picture in PICTURES[name]:
            box = f"document.getElementById('{part}').getBoundingClientRect()"
            top, height = chromium.evaluate(f"[{box}.top + scrollY, {box}.height]")
            chromium.screenshot(ROOT / "docs" / "images" / picture, top - 12, min(height, most))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
