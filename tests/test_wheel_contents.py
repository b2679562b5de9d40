"""The built wheel holds what the program reads at run time, and works in a fresh environment."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder)]
    subprocess.run([*pip, str(ROOT)], check=True)
    return next(folder.glob("*.whl"))


def test_it_holds_pages_matrix_and_schemas(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    pages = {f"cudnn_doctor/explain/pages/{p.name}" for p in ROOT.glob("docs/diagnoses/*.md")}
    assert pages
    assert pages <= names
    assert "cudnn_doctor/matrix/compat_matrix.yaml" in names
    assert any(name.startswith("cudnn_doctor/report/schemas/") for name in names)
    assert not any(name.startswith("tests/") for name in names)


def test_installed_it_prints_a_page_and_a_release(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "v"], check=True)
    python = tmp_path / "v" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", wheel], check=True)
    doctor = python.with_name("cudnn-doctor")

    def said(*arguments: str) -> str:
        done = subprocess.run(
            [doctor, *arguments], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        return done.stdout

    page = (ROOT / "docs" / "diagnoses" / "musl-libc.md").read_text(encoding="utf-8")
    assert said("explain", "--about", "musl-libc") == page
    assert "9.10.2" in said("matrix", "show", "9.10.2")
