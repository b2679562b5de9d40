"""CUDA toolkits and cuDNN headers in folder trees laid out as the real ones are."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import fakewheels

from cudnn_doctor.machine.environments import probe_environments
from cudnn_doctor.machine.headers import header_version, probe_headers
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Header, Toolkit
from cudnn_doctor.machine.toolkits import probe_toolkits


def write(root: Path, path: str, text: str = "", mode: int = 0o644) -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


def link(root: Path, path: str, target: str) -> None:
    place = root / path.lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def toolkits(root: Path, **environ: str) -> dict[str, Toolkit]:
    return {t.path: t for t in probe_toolkits(Host(str(root), environ), ())}


def test_versions_come_from_each_kind_of_evidence(tmp_path: Path) -> None:
    json = '{"cuda" : {"name" : "CUDA SDK", "version" : "12.8.1"}, "nccl": {"version": "2.0"}}'
    write(tmp_path, "/usr/local/cuda-12.8/version.json", json)
    write(tmp_path, "/usr/local/cuda-12.8/bin/nvcc", mode=0o755)
    write(tmp_path, "/usr/local/cuda-10.2/version.txt", "CUDA Version 10.2.89\n")
    write(tmp_path, "/usr/local/cuda-11.8/targets/x86_64-linux/lib/libcudart.so.11.8.89")
    write(tmp_path, "/opt/cuda/bin/nvcc", mode=0o755)
    write(tmp_path, "/opt/cuda/include/cuda.h", "#define CUDA_VERSION 13000\n")
    link(tmp_path, "/usr/local/cuda", "/usr/local/cuda-12.8")
    assert {path: t.version for path, t in toolkits(tmp_path).items()} == {
        "/usr/local/cuda-12.8": "12.8.1",
        "/usr/local/cuda-10.2": "10.2.89",
        "/usr/local/cuda-11.8": "11.8.89",
        "/opt/cuda": "13.0",
    }


def test_the_active_one_is_named_by_variable_or_path(tmp_path: Path) -> None:
    for version in ("11.8", "12.8"):
        write(tmp_path, f"/usr/local/cuda-{version}/bin/nvcc", mode=0o755)
    link(tmp_path, "/usr/local/cuda", "cuda-12.8")
    by_variable = toolkits(tmp_path, CUDA_HOME="/usr/local/cuda")
    assert [p for p, t in by_variable.items() if t.active] == ["/usr/local/cuda-12.8"]
    by_path = toolkits(tmp_path, PATH="/usr/local/cuda-11.8/bin:/usr/bin")
    assert [p for p, t in by_path.items() if t.active] == ["/usr/local/cuda-11.8"]
    assert not any(t.active for t in toolkits(tmp_path).values())


def test_a_folder_that_only_held_cudnn_is_no_toolkit(tmp_path: Path) -> None:
    write(tmp_path, "/usr/local/cuda/lib64/libcudnn.so.8")
    write(tmp_path, "/usr/local/cuda/include/cudnn_version.h")
    assert toolkits(tmp_path) == {}


def test_the_distributions_own_toolkit(tmp_path: Path) -> None:
    write(tmp_path, "/usr/lib/nvidia-cuda-toolkit/bin/nvcc", mode=0o755)
    write(tmp_path, "/usr/bin/nvcc", mode=0o755)
    write(tmp_path, "/usr/lib/x86_64-linux-gnu/libcudart.so.11.8.89")
    (found,) = toolkits(tmp_path, PATH="/usr/bin").values()
    assert (found.kind, found.version, found.nvcc) == ("distro", "11.8.89", "/usr/bin/nvcc")
    assert found.active


def test_toolkits_of_wheels_and_conda(tmp_path: Path) -> None:
    site = fakewheels.make_venv(tmp_path / "home/venv")
    runtimes = [("-cu12", "12.8.90", "cuda_runtime", "12"), ("", "13.0.96", "cu13", "13")]
    for suffix, version, folder, major in runtimes:
        wheel = fakewheels.cuda_wheel(
            tmp_path,
            f"nvidia-cuda-runtime{suffix}",
            version,
            f"nvidia/{folder}/lib",
            [f"libcudart.so.{major}"],
        )
        fakewheels.install(tmp_path / "home/venv", wheel)
    conda = tmp_path / "home/miniconda3"
    write(conda, "conda-meta/cuda-cudart-12.6.77-h5888daf_0.json", "{}")
    write(conda, "lib/libcudart.so.12")
    host = Host("/", {"HOME": str(tmp_path / "home"), "PATH": ""})
    found = probe_toolkits(host, probe_environments(host))
    assert {(t.path, t.kind, t.version) for t in found if str(tmp_path) in t.path} == {
        (f"{site}/nvidia/cuda_runtime", "wheels", "12.8.90"),
        (f"{site}/nvidia/cu13", "wheels", "13.0.96"),
        (str(conda), "conda", "12.6.77"),
    }


def test_headers_everywhere_each_once(tmp_path: Path) -> None:
    root = tmp_path / "root"
    seven = "#define CUDNN_MAJOR 7\n#define CUDNN_MINOR 6\n#define CUDNN_PATCHLEVEL 5\n"
    write(root, "/usr/local/cuda-10.2/include/cudnn.h", seven)
    write(root, "/usr/include/x86_64-linux-gnu/cudnn_version_v9.h", header("9.14.0"))
    alternative = "/etc/alternatives/cudnn_version_h"
    link(root, "/usr/include/x86_64-linux-gnu/cudnn_version.h", alternative)
    link(root, alternative, "/usr/include/x86_64-linux-gnu/cudnn_version_v9.h")
    link(root, "/usr/include/cudnn_version.h", alternative)
    write(root, "/srv/cudnn/include/cudnn_version.h", header("8.9.7"))
    write(root, "/opt/cudnn-broken/include/cudnn.h", '#include "cudnn_version.h"\n')
    host = Host(str(root), {"CUDNN_ROOT": "/srv/cudnn"})
    assert probe_headers(host, (), ()) == (
        Header(path="/srv/cudnn/include/cudnn_version.h", version="8.9.7"),
        Header(path="/usr/include/cudnn_version.h", version="9.14.0"),
        Header(path="/usr/local/cuda-10.2/include/cudnn.h", version="7.6.5"),
        Header(path="/opt/cudnn-broken/include/cudnn.h"),
    )


def test_the_wheels_header(tmp_path: Path) -> None:
    site = fakewheels.make_venv(tmp_path / "venv")
    fakewheels.install(tmp_path / "venv", fakewheels.cudnn_wheel(tmp_path, "9.10.2.21"))
    host = Host("/", {"VIRTUAL_ENV": str(tmp_path / "venv"), "HOME": str(tmp_path), "PATH": ""})
    found = probe_headers(host, probe_environments(host), ())
    path = f"{site}/nvidia/cudnn/include/cudnn_version.h"
    assert Header(path=path, version="9.10.2") in found


def header(version: str) -> str:
    return fakewheels.version_header(version)


@pytest.mark.parametrize("text", ["", "#define CUDNN_MAJOR 9\n", "#define CUDNN_MAJOR x\n"])
def test_a_header_without_all_macros_states_nothing(text: str) -> None:
    assert header_version(text) is None


@given(st.text())
def test_header_version_never_raises(text: str) -> None:
    header_version(text + "\n#define CUDNN_MAJOR 9")
