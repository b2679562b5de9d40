"""The project's files: pins and library paths with their lines, and nothing secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudnn_doctor.machine import project as probe
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Project


def look(folder: Path, root: Path | None = None, **texts: str) -> Project:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    host = Host(str(root or folder / "no-root"), {"HOME": "/home/ada"})
    return probe.probe_project(host, str(folder))


def asked(project: Project) -> list[tuple[str, str, str, int]]:
    return [(r.name, r.wanted, r.file, r.line) for r in project.requirements]


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("requirements.txt", "# torch==1\nnumpy\ntorch==2.6.0 # x\n", ("torch", "==2.6.0", 3)),
        ("requirements-gpu.txt", "nvidia_cudnn_cu12>=9.1\n", ("nvidia-cudnn-cu12", ">=9.1", 1)),
        ("requirements.txt", "jax[cuda12]>=0.4\n", ("jax", "[cuda12]>=0.4", 1)),
        ("pyproject.toml", 'dependencies = ["torch==2.6"]\n', ("torch", "==2.6", 1)),
        ("pyproject.toml", '[x]\ntensorflow = "^2.16"\n', ("tensorflow", "^2.16", 2)),
        ("environment.yml", "dependencies:\n  - cudnn=9.1\n", ("cudnn", "=9.1", 2)),
        ("uv.lock", '[[package]]\nname = "torch"\nversion = "2.6.0"\n', ("torch", "==2.6.0", 2)),
        (
            "Dockerfile",
            "FROM nvidia/cuda:12.4-cudnn-devel AS x\n",
            ("nvidia/cuda", "12.4-cudnn-devel", 1),
        ),
        ("Dockerfile", "RUN pip install \\\n  x \\\n  torch==2.6\nRUN a\n", ("torch", "==2.6", 3)),
        (
            "compose.yaml",
            "x:\n  image: nvcr.io/nvidia/pytorch:24.10-py3\n",
            ("nvcr.io/nvidia/pytorch", "24.10-py3", 2),
        ),
    ],
)
def test_pins(tmp_path: Path, file: str, text: str, expected: tuple[str, str, int]) -> None:
    name, wanted, line = expected
    assert asked(look(tmp_path, **{file: text})) == [(name, wanted, file, line)]


@pytest.mark.parametrize(
    "text",
    ["torchmetrics==1\n", "COPY torch/x /x\n", "-r torch/requirements.txt\n", "my-torch==2\n"],
)
def test_other_names_are_not_taken_for_ours(tmp_path: Path, text: str) -> None:
    assert asked(look(tmp_path, **{"requirements.txt": text})) == []


@pytest.mark.parametrize(
    ("file", "text", "value", "line"),
    [
        ("run.sh", '#!/bin/sh\nexport LD_LIBRARY_PATH="/a:$LD_LIBRARY_PATH"\n', "/a", 2),
        ("Dockerfile", "FROM x\nENV LD_LIBRARY_PATH=/a\n", "/a", 2),
        ("Dockerfile", "ENV LD_LIBRARY_PATH /a\n", "/a", 1),
        (".env", "LD_LIBRARY_PATH=/a\n", "/a", 1),
        ("compose.yaml", "e:\n  LD_LIBRARY_PATH: /a\n", "/a", 2),
        ("compose.yaml", 'e:\n  - "LD_LIBRARY_PATH=/a"\n', "/a", 2),
        (".github/workflows/ci.yml", "env:\n  LD_LIBRARY_PATH: /a\n", "/a", 2),
        (".venv/bin/activate", "x\ny\nexport LD_LIBRARY_PATH=/a\n", "/a", 3),
    ],
)
def test_settings(tmp_path: Path, file: str, text: str, value: str, line: int) -> None:
    (found,) = look(tmp_path, **{file: text}).settings
    assert (found.variable, found.file, found.line) == ("LD_LIBRARY_PATH", file, line)
    assert found.value.split(":")[0] == value


def test_system_and_shell_files_are_those_of_the_probed_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for path in ("etc/profile.d/cuda.sh", "home/ada/.bashrc", "etc/systemd/system/a.service"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("# x\nEnvironment=LD_LIBRARY_PATH=/a\n")
    found = look(tmp_path / "here", root, **{"run.sh": "LD_LIBRARY_PATH=/b x\n"})
    assert [(s.file, s.line) for s in found.settings] == [
        ("run.sh", 1),
        ("/etc/profile.d/cuda.sh", 2),
        ("/etc/systemd/system/a.service", 2),
        ("/home/ada/.bashrc", 2),
    ]


def test_comments_set_nothing(tmp_path: Path) -> None:
    assert look(tmp_path, **{"run.sh": "# export LD_LIBRARY_PATH=/a\n"}).settings == ()


def test_credentials_stay_out(tmp_path: Path) -> None:
    text = "--index-url https://me:pw1@x/simple\ntorch @ https://me:pw2@x/t.whl?token=pw3\n"
    found = look(tmp_path, **{"requirements.txt": text})
    assert "pw" not in repr(found)
    assert found.requirements[0].line == 2


def test_odd_files_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").mkdir()
    (tmp_path / "Dockerfile").symlink_to("nowhere")
    (tmp_path / "pyproject.toml").write_bytes(b"\xff\xfe\x00torch==2.6\n" + b"x" * (2 << 20))
    found = look(tmp_path)
    assert found.files == ("pyproject.toml",)


@given(st.text(max_size=300))
def test_any_line_is_read(text: str) -> None:
    lines = text.splitlines()
    for find in (probe._asked, probe._locked, probe._images, probe._asked_by_command, probe._set):
        assert all(1 <= fact.line <= len(lines) for fact in find(lines, "f"))
