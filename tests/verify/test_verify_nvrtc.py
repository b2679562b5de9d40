"""NVRTC as a copy would open it: real folders, a real loader."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from cudnn_doctor.verify import child, fused, ladder
from cudnn_doctor.verify.lab import Uncompiled, Unsupported
from cudnn_doctor.verify.model import Event

_ASK = """
import sys
from cudnn_doctor.verify.model import Copy
from cudnn_doctor.verify.nvrtc import missing
folder, release, cc, *libraries = sys.argv[1:]
copy = Copy(folder=folder, shim="libcudnn.so.9", libraries=tuple(libraries))
print(missing(copy, tuple(map(int, release.split("."))), "13", tuple(map(int, cc.split(".")))))
"""
_ENGINES = "libcudnn_engines_runtime_compiled.so.9"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site-packages with a folder for cuDNN and for CUDA 13's libraries."""
    (tmp_path / "nvidia/cudnn/lib").mkdir(parents=True)
    (tmp_path / "nvidia/cu13/lib").mkdir(parents=True)
    return tmp_path


def build(path: Path) -> None:
    subprocess.run(
        ["gcc", "-shared", "-x", "c", "-", "-o", str(path)],
        input=b"int nvrtcVersion;", check=True,
    )  # fmt: skip


def ask(
    site: Path, release: str = "9.19.0", cc: str = "9.0", first: str = "", part: str = _ENGINES
) -> str:
    folder = str(site / "nvidia/cudnn/lib")
    done = subprocess.run(
        [sys.executable, "-c", _ASK, folder, release, cc, "libcudnn.so.9", part],
        env={**os.environ, "LD_LIBRARY_PATH": first}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_names_places_and_the_wheel_of_the_right_major_are_told(site: Path) -> None:
    why = ask(site)
    assert "libnvrtc.so.13: no such file" in why
    assert "libnvrtc.so: no such file" in why
    assert f"{site}/nvidia/cu13/lib" in why
    assert "pip install 'nvidia-cuda-nvrtc==13.*'" in why


def test_the_folders_of_the_runpath_count(site: Path) -> None:
    build(site / "nvidia/cu13/lib/libnvrtc.so.13")
    assert ask(site) == ""
    assert ask(site, release="9.16.0")  # whose RUNPATH does not name that folder


def test_either_name_is_enough(site: Path) -> None:
    build(site / "nvidia/cudnn/lib/libnvrtc.so")
    assert ask(site) == ""


def test_a_file_that_cannot_be_used_hides_a_good_one_behind_it(site: Path, tmp_path: Path) -> None:
    build(site / "nvidia/cu13/lib/libnvrtc.so.13")
    first = tmp_path / "first"
    first.mkdir()
    (first / "libnvrtc.so.13").write_bytes(b"\x7fELF not really")
    why = ask(site, first=str(first))
    assert f"{first}/libnvrtc.so.13: " in why


@pytest.mark.parametrize(
    "case",
    [{"release": "9.24.0"}, {"cc": "7.5"}, {"part": "libcudnn_graph.so.9"}],
    ids=["has a compiler of its own", "older GPU", "does not ship the engines"],
)
def test_nothing_is_said_of_copies_that_do_not_need_it(site: Path, case: dict[str, str]) -> None:
    assert ask(site, **case) == ""


def test_only_the_wish_for_run_time_compilation_is_answered_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing: Any = None
    monkeypatch.setattr(fused, "plans", lambda *_: iter(()))
    with pytest.raises(Uncompiled):
        fused.first_plan(nothing, nothing, fused.run_time_compiled)
    with pytest.raises(Unsupported) as refused:
        fused.first_plan(nothing, nothing, fused.precompiled)
    assert not isinstance(refused.value, Uncompiled)


@pytest.mark.parametrize(
    ("why", "status", "detail"),
    [
        ("", "skip", "none is proposed"),
        ("libnvrtc is missing", "fail", "libnvrtc is missing [none"),
    ],
)
def test_the_step_fails_only_where_nvrtc_is_the_cause(why: str, status: str, detail: str) -> None:
    def work(_: Any) -> dict[str, Any]:
        raise Uncompiled("none is proposed")

    reading, writing = os.pipe()
    session: Any = SimpleNamespace(
        report=child.Reporter(writing), lab=None, without_nvrtc=lambda: why,
        job=SimpleNamespace(done=()),
    )  # fmt: skip
    assert child._do(session, "convolve", [ladder.Step("fused", work)])
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        ended = msgspec.json.decode(pipe.read().splitlines()[-1], type=Event)
    assert ended.status == status
    assert ended.detail.startswith(detail)
