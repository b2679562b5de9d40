"""The picture in CONTRIBUTING.md holds: data flows one way, and commands start fast."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "cudnn_doctor"
ROOMS = {
    "machine": set(),
    "matrix": {"machine"},
    "checks": {"machine", "matrix"},
    "explain": {"machine", "matrix", "checks"},
    "verify": {"machine", "matrix"},
    "install": {"machine", "matrix", "checks", "verify"},
    "report": {"machine", "matrix", "checks", "explain", "verify", "install"},
    "cli": {"machine", "matrix", "checks", "explain", "verify", "install", "report"},
}
"""Room -> rooms that it may import (besides itself and the modules at the top)."""
METHODS = {
    "archives": set(),
    "wheels": {"archives"},
    "prefixes": {"archives", "wheels"},
    "packages": {"archives"},
}
"""Folder of ``install`` -> its neighbours that it may import."""
HEAVY = {"rich", "requests", "pynvml", "yaml", "packaging", "distro", "msgspec", "cupy", "numpy"}
"""What no command-line module may import before its command runs."""


def imports(path: Path) -> set[str]:
    """Names of all modules that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_is_below_it(room: str) -> None:
    for path in (PACKAGE / room).rglob("*.py"):
        for name in imports(path):
            parts = name.split(".")
            if parts[0] != "cudnn_doctor" or len(parts) < 2 or parts[1] not in ROOMS:
                continue
            assert parts[1] in ROOMS[room] | {room}, f"{path.name} imports {name}"


@pytest.mark.parametrize("folder", METHODS)
def test_the_methods_of_installation_know_little_of_each_other(folder: str) -> None:
    for path in (PACKAGE / "install" / folder).glob("*.py"):
        for name in imports(path):
            _, room, part, *_ = (*name.split("."), "", "", "")
            if room == "install" and part in METHODS:
                assert part in METHODS[folder] | {folder}, f"{path.name} imports {name}"


def test_no_room_was_forgotten() -> None:
    folders = {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert folders == set(ROOMS)


def test_the_command_line_imports_nothing_heavy_before_a_command_runs() -> None:
    script = "import sys; import cudnn_doctor.cli; print('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert not loaded & (HEAVY - {"rich"})


def test_files_are_short_enough_to_hold_in_the_head() -> None:
    long = {
        str(path.relative_to(PACKAGE)): count
        for path in PACKAGE.rglob("*.py")
        if (count := path.read_text().count("\n")) > 450
    }
    assert not long
