"""The documentation is in step with the program: ids, headings, commands, links, exit codes."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cudnn_doctor.checks.registry import CATEGORIES, NOT_SHOWN, all_rules, known_ids
from cudnn_doctor.checks.suppress import STALE
from cudnn_doctor.cli import exitcodes
from cudnn_doctor.cli.app import Commands, app
from cudnn_doctor.errors import ExitCode
from cudnn_doctor.explain.about import page, page_ids
from cudnn_doctor.explain.catalogue import load_diagnoses
from cudnn_doctor.report.schema import DOCUMENTS

ROOT = Path(__file__).parent.parent
DOCS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
PAGES = sorted(ROOT.glob("docs/diagnoses/*.md"))
HEADINGS = [
    "How it looks",
    "Why it happens",
    "How to be sure",
    "What to do",
    "How to prevent it",
    "What not to do",
]
ALL_IDS = {*load_diagnoses(), *known_ids(), STALE}


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_diagnosis_has_a_page_and_every_page_a_diagnosis() -> None:
    assert {path.stem for path in PAGES} == ALL_IDS
    assert set(page_ids()) == ALL_IDS


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_page_has_all_parts(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"# {path.stem}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS
    for part in re.split(r"^## .*$", text, flags=re.MULTILINE):
        assert len(part.strip()) > 20
    assert 25 <= len(text.splitlines()) <= 75
    entry = load_diagnoses().get(path.stem)
    if entry is not None:
        assert text.split("\n")[2] == f"{entry.title}."


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_page_says_who_finds_it(path: Path) -> None:
    line = " ".join(path.read_text(encoding="utf-8").split("\n\n")[2].split())
    if path.stem in NOT_SHOWN:
        assert line == f"Found by `cudnn-doctor explain` only: it {NOT_SHOWN[path.stem]}."
        return
    categories = {rule.category for rule in all_rules() if path.stem in rule.ids}
    named = re.search(r"\(category (\w+)\)", line)
    assert named
    assert named[1] in (categories or CATEGORIES[:1])
    assert ("explain" in line) == (path.stem in load_diagnoses())


def test_pages_are_printed_whole() -> None:
    for path in PAGES:
        assert page(path.stem) == path.read_text(encoding="utf-8").rstrip()
    assert page("../README") is None


def _shell_lines(text: str) -> Iterator[str]:
    """Lines of sh blocks, and what stands in backticks."""
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        yield from block.replace("\\\n", " ").splitlines()
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    yield from (" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose))


@pytest.mark.parametrize("path", DOCS, ids=_name)
def test_shell_blocks_are_shell(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def _calls(line: str) -> Iterator[list[str]]:
    """The arguments of each cudnn-doctor call in a shell line."""
    if "cudnn-doctor " not in line:
        return
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.wordchars += "$@:=!,%^+[]{}"
    call: list[str] | None = None
    for token in lexer:
        if set(token) <= set("|&;<>()"):
            yield from [call] if call else []
            call = None
        elif call is not None:
            call.append(token)
        elif token.rpartition("/")[2] == "cudnn-doctor":
            call = []
    yield from [call] if call else []


def _documented_calls() -> list[tuple[str, list[str]]]:
    return [
        (_name(path), call)
        for path in DOCS
        for line in _shell_lines(path.read_text(encoding="utf-8"))
        for call in _calls(line)
    ]


COMMAND: Any = typer.main.get_command(app)
USAGE_ERROR = typer.BadParameter.__mro__[1]
"""click's UsageError, whether typer brings its own click or not."""


def _parse(arguments: list[str]) -> dict[str, Any]:
    """Parse as the program would, without running anything. Raises USAGE_ERROR."""
    command = COMMAND
    context = command.make_context("cudnn-doctor", list(arguments))
    while hasattr(command, "resolve_command"):
        name, found, rest = command.resolve_command(context, _left_over(context))
        assert found is not None, name
        command = found
        context = command.make_context(name, rest, parent=context)
    return dict(context.params)


def _left_over(context: Any) -> list[str]:
    return [*getattr(context, "_protected_args", []), *context.args]


CALLS = _documented_calls()


def test_the_documents_show_many_calls() -> None:
    assert len(CALLS) > 200


@pytest.mark.parametrize(("where", "call"), CALLS, ids=[f"{w}: {' '.join(c)}" for w, c in CALLS])
def test_documented_call_parses(where: str, call: list[str]) -> None:
    if call[:1] in (["--help"], ["--version"], ["--install-completion"]) or call[-1:] == ["--help"]:
        return
    params = _parse(call)
    named = [params.get("about"), *(params.get("only") or []), *(params.get("skip") or [])]
    for id in filter(None, named):
        assert id in ALL_IDS or id in CATEGORIES, f"{where}: {id}"
    for entry in params.get("suppress") or []:
        assert str(entry).partition("=")[0] in ALL_IDS


@pytest.mark.parametrize("bad", [["check", "--nonsense"], ["no-such-command"], ["matrix", "nope"]])
def test_a_wrong_call_would_be_noticed(bad: list[str]) -> None:
    with pytest.raises(USAGE_ERROR):
        _parse(bad)


def _anchors(path: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", DOCS, ids=_name)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        place = (path.parent / file) if file else path
        assert place.exists(), target
        assert not anchor or anchor in _anchors(place), target


def test_exit_codes_are_documented_once_and_fully() -> None:
    text = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| ([^|]+) \|", text, re.MULTILINE)
    assert set(exitcodes.MEANING) == set(ExitCode)
    assert rows == [(str(int(c)), c.name, said) for c, said in exitcodes.MEANING.items()]
    for code, said in exitcodes.MEANING.items():
        assert f"{int(code):>3}  {said}" in exitcodes.EPILOG


def test_every_schema_is_named() -> None:
    text = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`(\w+)\.json` \|$", text, re.MULTILINE)) == set(DOCUMENTS)


def test_the_rooms_are_told_alike_wherever_they_are_told() -> None:
    def rooms(path: Path) -> list[str]:
        text = path.read_text(encoding="utf-8")
        return re.findall(r"^\| `cudnn_doctor/\w+/` \|.*$", text, re.MULTILINE)

    told = rooms(ROOT / "CONTRIBUTING.md")
    assert told
    assert rooms(ROOT / "docs" / "architecture.md") == told


def test_every_command_is_named_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in Commands.places:
        assert re.search(rf"cudnn-doctor {name}\b|`{name}`", text), name


@pytest.mark.parametrize("marker", ["check", "test"])
def test_readme_commands_are_one_line_each(marker: str) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(rf"<!-- {marker} -->\n```sh\n(.*)\n```\n", text)
    assert len(found) == 1


def test_the_commonest_jobs_are_told_alike_in_the_readme_and_the_guide() -> None:
    """The guide's are typed for real by tests/install/test_docs_jobs.py."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (jobs,) = re.findall(r"^## Five common installations\n(.*?)^## ", readme, re.M | re.S)
    guide = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    lines = [line for b in re.findall(r"```sh\n(.*?)```", jobs, re.S) for line in b.splitlines()]
    assert len(lines) > 8
    for line in lines:
        assert line.removeprefix("cudnn-doctor ") in guide, line


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 250
