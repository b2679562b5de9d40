"""The stand-in wheels behave as the real ones do where it matters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from support import fakewheels


def dynamic(path: Path) -> dict[str, list[str]]:
    tags: dict[str, list[str]] = {}
    with path.open("rb") as file:
        for section in ELFFile(file).iter_sections():
            if isinstance(section, DynamicSection):
                for tag in section.iter_tags():
                    for name in ("soname", "needed", "rpath", "runpath"):
                        if hasattr(tag, name):
                            tags.setdefault(name, []).append(getattr(tag, name))
    return tags


@pytest.mark.parametrize(
    ("version", "count", "tag"),
    [("7.6.5", 1, None), ("8.9.7.29", 7, "runpath"), ("9.10.2.21", 8, "runpath"),
     ("9.28.1.4", 10, "rpath")],
)  # fmt: skip
def test_libraries_carry_the_measured_tags(version: str, count: int, tag: str | None) -> None:
    libraries = fakewheels.cudnn_libraries(version)
    assert len(libraries) == count
    major = version.split(".")[0]
    shim = dynamic(libraries[f"libcudnn.so.{major}"])
    assert shim["soname"] == [f"libcudnn.so.{major}"]
    if tag:
        assert shim[tag] == ["$ORIGIN"]


def test_needed_follow_the_release() -> None:
    libraries = fakewheels.cudnn_libraries("9.28.1.4")
    compiled = dynamic(libraries["libcudnn_engines_runtime_compiled.so.9"])
    assert {"libcudnn_graph.so.9", "libcuda.so.1"} <= set(compiled["needed"])


@pytest.mark.parametrize("version", ["8.9.7.29", "9.10.2.21"])
def test_the_shim_answers_for_the_sublibrary_and_dies_without_it(
    version: str, tmp_path: Path
) -> None:
    folder = fakewheels.cudnn_folder(tmp_path / "lib", version)
    shim = folder / f"libcudnn.so.{version[0]}"
    code = f"import ctypes; print(ctypes.CDLL({str(shim)!r}).cudnnGetVersion())"
    ask = [sys.executable, "-c", code]
    done = subprocess.run(ask, capture_output=True, text=True, check=True)
    assert int(done.stdout) == fakewheels.encoded(version)
    for path in folder.glob("libcudnn_*"):
        path.unlink()
    assert subprocess.run(ask, capture_output=True, check=False).returncode == -6


def test_real_pip_installs_them(tmp_path: Path) -> None:
    site = fakewheels.make_venv(tmp_path / "venv")
    wheels = [fakewheels.cudnn_wheel(tmp_path, "9.10.2.21"), fakewheels.torch_wheel(tmp_path)]
    fakewheels.install(tmp_path / "venv", *wheels)
    assert (site / "nvidia/cudnn/lib/libcudnn_ops.so.9").stat().st_size > 0
    assert "nvidia/cudnn/lib" in dynamic(site / "torch/lib/libtorch_cuda.so")["rpath"][0]
