"""Documentation is complete, true and readable: every encoding has a section and a picture, examples and the notebook
run, tables and the plot equal their data, links resolve, lines are short, and the site builds.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote

import matplotlib
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from matplotlib.image import imread

from fairseq_posenc.encodings import ENCODINGS, build_encoding
from fairseq_posenc.encodings.contract.options import flag
from fairseq_posenc.encodings.contract.registry import default_options, supports_urpe
from fairseq_posenc.export.positions import CONVERTERS
from posenc_experiments.base.read_recipe import read_recipe
from posenc_experiments.cli import group

ROOT = Path(__file__).resolve().parents[1]
#: every page of the repository, by its path; not those of an environment or a checkout beside it
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for pattern in ("*.md", "docs/**/*.md", "recipes/**/*.md", "results/**/*.md", "tests/**/*.md")
    for path in ROOT.glob(pattern)
}
#: tools/tables.py
tables = import_module("tables")
#: every row of the CSV files of results/, with its file
RESULTS = [(path, row) for path in (ROOT / "results").rglob("*.csv") for row in tables.read(path)]
LINK = re.compile(r"\]\(([^)\s]+)\)")
PAGE = PAGES["docs/encodings.md"]
SECTIONS = {section.partition("\n")[0]: section for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]}
#: also says what a model sets for all encodings, the keywords that are no flags
CONVENTIONS = SECTIONS["Conventions"]


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding_has_a_section(name):
    section, cls = SECTIONS[name], ENCODINGS[name]
    for parameter, _ in build_encoding(name, 2, 4).named_parameters():
        assert f"`{parameter}`" in section
    for option, meaning in cls.options.items():
        assert f"`{flag(option)}`" in section if meaning.is_flag else f"`{option}`" in section + CONVENTIONS
    assert ("`--bias-gain`" in section) == bool(cls.scalars or cls.facts.input_positions == "learned")
    assert "```math" in section
    assert f"![{name}](images/{name}.png)" in section
    assert (ROOT / "docs" / "images" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ENCODINGS)
def test_the_defaults_in_a_section_are_those_of_the_code(name):
    for option, default in default_options(ENCODINGS[name]).items():
        if default is not None:
            is_flag = ENCODINGS[name].options[option].is_flag
            typed, place = (flag(option), SECTIONS[name]) if is_flag else (option, SECTIONS[name] + CONVENTIONS)
            value = f"{default:g}" if isinstance(default, float) else str(default).removesuffix(".0")
            said = re.search(rf"`{typed}`(?:\s+[A-Z],)?,?\s+(?:{value}|{value.lower()})\b", place)
            assert said, f"{typed} is {default}"


def test_every_encoding_is_in_both_tables():
    rows = re.findall(r"^\| \[(\w+)\]\(#(\w+)\) \|", SECTIONS["All at a glance"], flags=re.MULTILINE)
    links = re.findall(r"\[`(\w+)`\]\(docs/encodings.md#(\w+)\)", PAGES["README.md"])
    assert sorted(rows) == sorted(links) == sorted((name, name) for name in ENCODINGS)
    for page in ("README.md", "docs/index.md"):
        assert f"{len(ENCODINGS)} position encodings" in PAGES[page], page


def test_the_options_say_where_urpe_is_refused():
    listed = re.search(r"These add none:\s+([^.]+)\.", PAGES["docs/options.md"])[1]
    refused = {name for name, cls in ENCODINGS.items() if not supports_urpe(cls)}
    assert refused == {*re.findall(r"`(\w+)`", listed), "diet_abs_lin"}


def test_the_examples_run_in_their_order():
    namespace = {}
    torch.set_default_dtype(torch.float64)
    try:
        for page, least in (("docs/encodings.md", 2), ("docs/options.md", 4)):
            blocks = list(re.finditer(r"^```python\n(.*?)^```", PAGES[page], flags=re.MULTILINE | re.DOTALL))
            assert len(blocks) >= least
            for block in blocks:
                line = PAGES[page][: block.start(1)].count("\n")
                exec(compile("\n" * line + block[1], page, "exec"), namespace)  # errors name the page's line
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_picture_is_drawn(tmp_path):
    picture = tmp_path / "shaw.png"
    result = CliRunner().invoke(group, ["plot-encodings", "--output", str(tmp_path), "shaw"])
    assert (result.exit_code, result.stdout) == (0, f"{picture}\n"), result.output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_tables_equal_their_data():
    for name in tables.PAGES:
        path, text = tables.filled(name)
        assert path.read_text(encoding="utf-8") == text


@pytest.mark.slow
def test_all_results_are_made_again_from_the_kept_files(shared, tmp_path):
    """`results.sh` makes every file of differences and every page again, in a copy without them."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "scripts/env.sh").write_text(f"export PYTHON={sys.executable}\n")
    made = [path.relative_to(tmp_path) for path in (tmp_path / "results").rglob("*.csv")]
    for path in made:
        (tmp_path / path).unlink()
    command = ["bash", "tools/results.sh", shared / "data"]
    subprocess.run(command, cwd=tmp_path, check=True)
    for path in [*made, *tables.PAGES]:
        assert (tmp_path / path).read_text(encoding="utf-8") == (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("place", ["quickstart-short", "multi30k-short/en-de"])
def test_ranges_of_source_words_have_a_boundary_where_the_training_ends(place):
    tests = [row["test"].split(", ") for row in tables.read(ROOT / "results" / place / "compare.csv")]
    ranges = [words.split("-") for words in dict.fromkeys(part[0].split()[0] for _, *part in tests if part)]
    recipe = read_recipe(ROOT / "recipes" / place.partition("-")[0] / "short.yaml")
    assert int(ranges[0][1]) == recipe.prepare.train_max_words
    assert [int(first) for first, _ in ranges[1:]] == [int(last) + 1 for _, last in ranges[:-1]]
    assert ranges[-1][1] == ""


@pytest.mark.parametrize("page", ["README.md", "docs/comparisons.md"])
def test_intervals_in_sentences_are_those_of_the_tests(page):
    """Each `[-0.26, +0.97]`, with the difference if it is right before it, is in a CSV of results/, or its negative.

    It is the interval of a difference or of a verdict.
    """
    known = set()
    for _, row in RESULTS:
        for kind in ("difference", "verdict"):
            if row[f"{kind}_low"]:
                center, low, high = (float(row[key]) for key in ("difference", f"{kind}_low", f"{kind}_high"))
                for values in ((center, low, high), (-center, -high, -low)):
                    known |= {tuple(f"{value:+.{digits}f}" for value in values) for digits in (1, 2)}
    known |= {("", *values[1:]) for values in known}
    number = r"([+-]\d+\.\d+)"
    named = re.findall(rf"(?:{number}\s+)?\[{number},\s+{number}\]", PAGES[page])
    assert len(named) > 2
    assert set(named) <= known


def test_verdicts_are_those_of_the_questions():
    """In each file that was written with `--questions`, exactly the comparisons of a question have a verdict."""
    for path, row in RESULTS:
        if row["p_value"] and "quickstart" not in str(path) and "short" not in str(path):
            place = " ".join((row["corpus"], row["pair"], row["test"]))
            question = tables.QUESTIONS.comparing(place, row["experiment"], row["baseline"])
            assert row["comparisons"] == ("" if question is None else str(question.size)), (path, row["experiment"])


@pytest.mark.parametrize("corpus", ["multi30k", "kftt", "quickstart"])
def test_the_questions_compare_rows_that_exist(corpus):
    """Each is an experiment of a recipe, with flags after it, or has results."""
    compared = {table for question in tables.QUESTIONS.questions for table in question.tables}
    names = {name for table in compared if table.split()[0] == corpus for name in tables.QUESTIONS.names(table)}
    folder = ROOT / "recipes" / corpus
    known = {
        name for conf in set(folder.glob("*.yaml")) - {folder / "corpus.yaml"} for name in read_recipe(conf).experiments
    }
    known |= {row["experiment"] for _, row in RESULTS if row["corpus"] == corpus}
    assert names
    assert {name.split(" --")[0] for name in names} <= known


def test_the_plots_are_those_of_their_data(tmp_path):
    tables.draw(tmp_path / "clipping-distance.png")
    tables.draw_differences(tmp_path)
    drawn = list(tmp_path.iterdir())
    assert len(drawn) == 5
    for path in drawn:
        np.testing.assert_array_equal(imread(path), imread(tables.IMAGES / path.name))


def test_the_page_on_serving_says_which_encodings_are_exported():
    rows = re.findall(r"^\| (`.+?`) \| (.+?) \|", PAGES["docs/serving.md"], flags=re.MULTILINE)
    served = {name: answer != "no" for names, answer in rows for name in re.findall(r"`(\w+)`", names)}
    assert served == {name: name in CONVERTERS for name in ENCODINGS}
    assert served.keys() == ENCODINGS.keys()


def without_code(text: str) -> str:
    """The page with its fenced blocks as empty lines."""
    return re.sub(r"^( *)```.*?^\1```", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> Iterator[str]:
    """The anchors of a page's headings, as GitHub and the site name them."""
    for heading in re.findall(r"^#+ (.+)$", without_code(text), flags=re.MULTILINE):
        yield re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for link in LINK.findall(without_code(PAGES[page])):
        target, _, anchor = unquote(link).partition("#")
        path = (ROOT / page).parent / target if target else ROOT / page
        assert ":" in target or path.exists(), link
        assert not anchor or ":" in target or anchor in anchors(path.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("page", PAGES)
def test_lines_of_prose_are_short(page):
    for number, line in enumerate(without_code(PAGES[page]).splitlines(), 1):
        if not line.startswith("|"):
            shown = LINK.sub("]", line)
            assert len(shown) <= 120, f"{page}:{number} has {len(shown)} characters"


def test_the_version_is_the_same_everywhere():
    pattern = r'^(?:version = "|__version__ = "|version: |## )(\d[\d.]+\d)'
    files = ("pyproject.toml", "fairseq_posenc/__init__.py", "CITATION.cff", "CHANGELOG.md")
    versions = [re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)[1] for file in files]
    assert len(set(versions)) == 1, versions


def test_the_notebook_runs(tmp_path, monkeypatch):
    notebook = json.loads((ROOT / "examples" / "encodings.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)  # none to be out of date
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    namespace = {}
    for number, cell in enumerate(cells, 1):
        exec(compile("".join(cell["source"]), f"encodings.ipynb, code cell {number}", "exec"), namespace)
    assert len(namespace["plt"].get_fignums()) == 2
    namespace["plt"].close("all")
    assert list(tmp_path.iterdir()) == []


# the site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built by its strict check from a copy, so that nothing is written beside docs/."""
    pytest.importorskip("zensical", reason="the site is not checked: pip install '.[docs]' brings zensical")
    root = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", root / "docs")
    shutil.copy(ROOT / "mkdocs.yml", root)
    words = [sys.executable, "-m", "zensical", "build", "--strict"]
    result = subprocess.run(words, cwd=root, text=True, capture_output=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return root / "site"


def test_the_site_has_every_page_and_equation(site):
    assert {path.stem for path in site.glob("*.html")} >= {path.stem for path in (ROOT / "docs").glob("*.md")}
    for name in ("encodings", "options"):
        equations = PAGES[f"docs/{name}.md"].count("```math")
        assert (site / f"{name}.html").read_text(encoding="utf-8").count('<div class="arithmatex">') == equations > 0


def test_the_site_loads_nothing_from_the_network(site):
    resource = r'<(?:script|img)\b[^>]*\bsrc="([^"]+)"|<link\b[^>]*rel="stylesheet"[^>]*href="([^"]+)"'
    pages = "".join(page.read_text(encoding="utf-8") for page in site.glob("*.html"))
    urls = {url for pair in re.findall(resource, pages) for url in pair if url}
    assert len(urls) > len(ENCODINGS)
    assert not [url for url in urls if url.startswith(("http:", "https:", "//"))]
    fonts = (site / "assets" / "katex" / "katex.min.css").read_text(encoding="utf-8")
    assert "http" not in fonts
