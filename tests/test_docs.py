"""docs/encodings.md has a section and a picture for every encoding, and its examples run; tables equal their data."""

import importlib.util
import re
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from fairseq_posenc.encodings import ENCODINGS, build_encoding
from fairseq_posenc.encodings.options import flag
from fairseq_posenc.encodings.registry import default_options
from posenc_experiments.cli import group

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "encodings.md").read_text(encoding="utf-8")
SECTIONS = {section.partition("\n")[0]: section for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]}


@pytest.mark.parametrize("name", ENCODINGS)
def test_every_encoding_has_a_section(name):
    section = SECTIONS[name]
    for parameter, _ in build_encoding(name, 2, 4).named_parameters():
        assert f"`{parameter}`" in section
    for option, meaning in ENCODINGS[name].options.items():
        assert f"`{flag(option) if meaning.is_flag else option}`" in section
    assert ("`--bias-gain`" in section) == bool(ENCODINGS[name].scalars or ENCODINGS[name].input_positions == "learned")
    assert "```math" in section
    assert re.search(rf'build_encoding\(\s*"{name}"', section)
    assert f"![{name}](images/{name}.png)" in section
    assert (ROOT / "docs" / "images" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ENCODINGS)
def test_the_defaults_in_a_section_are_those_of_the_code(name):
    for option, default in default_options(ENCODINGS[name]).items():
        if default is not None:
            typed = flag(option) if ENCODINGS[name].options[option].is_flag else option
            value = f"{default:g}" if isinstance(default, float) else str(default).removesuffix(".0")
            said = re.search(rf"`{typed}`(?: [A-Z],)?,? (?:{value}|{value.lower()})\b", SECTIONS[name])
            assert said, f"{typed} is {default}"


def test_every_encoding_is_in_the_table_and_nothing_else():
    rows = re.findall(r"^\| \[(\w+)\]\(#(\w+)\) \|", SECTIONS["All at a glance"], flags=re.MULTILINE)
    assert sorted(rows) == sorted((name, name) for name in ENCODINGS)


def test_links_within_the_page_lead_somewhere():
    headings = re.findall(r"^#+ (.+)$", PAGE, flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= anchors


def test_the_examples_run_one_after_the_other():
    blocks = list(re.finditer(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL))
    assert len(blocks) > len(ENCODINGS)
    namespace = {}
    torch.set_default_dtype(torch.float64)
    try:
        for block in blocks:
            line = PAGE[: block.start(1)].count("\n")
            exec(compile("\n" * line + block[1], "encodings.md", "exec"), namespace)  # errors name the page's line
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_picture_is_drawn_the_same_every_time(tmp_path):
    paths = [tmp_path / folder / "shaw.png" for folder in ("one", "two")]
    for path in paths:
        result = CliRunner().invoke(group, ["plot-encodings", "--output", str(path.parent), "shaw"])
        assert (result.exit_code, result.output) == (0, f"{path}\n"), result.output
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert first.startswith(b"\x89PNG")
    assert len(first) < 60_000


def test_an_unknown_name_is_refused(tmp_path):
    result = CliRunner().invoke(group, ["plot-encodings", "--output", str(tmp_path / "none"), "shaw", "mine"])
    assert result.exit_code == 1
    assert "there is no position encoding 'mine'" in result.output
    assert not (tmp_path / "none").exists()


def test_tables_are_those_of_their_data():
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "data" / "tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in module.PAGES:
        path, text = module.filled(name)
        assert path.read_text(encoding="utf-8") == text
