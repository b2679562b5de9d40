"""A small world of cuDNN wheels: an index, the matrix that knows them, environments, pip and uv."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from support import fakewheels
from support.wheelindex import WheelIndex, digest

from cudnn_doctor.install import executor
from cudnn_doctor.install.plan import Plan
from cudnn_doctor.install.progress import Silent
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.install.state import State
from cudnn_doctor.install.wheels.planning import plan_wheel
from cudnn_doctor.machine.environments import probe_environments
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Machine
from cudnn_doctor.matrix.model import Matrix, Release, Wheel

BUILDS = ("9.1.0.70", "9.10.2.21", "9.12.0.46")
SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


def build_wheels(folder: Path) -> None:
    """cuDNN of three builds for CUDA 12 and of one for 11 and 13, their companions, torch, and the
    placeholder."""
    for build in BUILDS:
        fakewheels.cudnn_wheel(folder, build)
    fakewheels.cudnn_wheel(folder, "9.10.2.21", cuda="11")
    fakewheels.cudnn_wheel(folder, "9.12.0.46", cuda="13")
    for cuda, version, place in (("-cu11", "11.11.3.6", "cublas"), ("-cu12", "12.8.4.1", "cublas")):
        names = [f"libcublas.so.{version[:2]}", f"libcublasLt.so.{version[:2]}"]
        fakewheels.cuda_wheel(folder, f"nvidia-cublas{cuda}", version, f"nvidia/{place}/lib", names)
        nvrtc = [f"libnvrtc.so.{version[:2]}"]
        place = "nvidia/cuda_nvrtc/lib"
        fakewheels.cuda_wheel(folder, f"nvidia-cuda-nvrtc{cuda}", version, place, nvrtc)
    names = ["libcublas.so.12", "libcublasLt.so.12"]
    fakewheels.cuda_wheel(folder, "nvidia-cublas-cu12", "12.9.1.4", "nvidia/cublas/lib", names)
    for version in ("13.1.0.3", "14.0.0.1"):
        major = version[:2]
        names = [f"libcublas.so.{major}", f"libcublasLt.so.{major}"]
        fakewheels.cuda_wheel(folder, "nvidia-cublas", version, f"nvidia/cu{major}/lib", names)
        place = f"nvidia/cu{major}/lib"
        fakewheels.cuda_wheel(folder, "nvidia-cuda-nvrtc", version, place, [f"libnvrtc.so.{major}"])
    fakewheels.build_wheel(
        folder, "nvidia-cudnn", "0.0.1.dev5", {"nvidia_cudnn.py": "raise OSError\n"}
    )


def build_cuda12(folder: Path, build: str) -> None:
    """cuDNN of one build for CUDA 12 and its companions."""
    fakewheels.cudnn_wheel(folder, build)
    for package, version, place, names in (
        ("nvidia-cublas-cu12", "12.8.4.1", "cublas", ("libcublas.so.12", "libcublasLt.so.12")),
        ("nvidia-cuda-nvrtc-cu12", "12.8.4.1", "cuda_nvrtc", ("libnvrtc.so.12",)),
    ):
        fakewheels.cuda_wheel(folder, package, version, f"nvidia/{place}/lib", names)


def matrix_of(folder: Path, builds: Sequence[str] = BUILDS) -> Matrix:
    """A matrix that knows the cuDNN wheels of a folder."""
    releases = []
    for build in builds:
        names = sorted(fakewheels.cudnn_libraries(build), key=lambda name: ("_" in name, name))
        wheels = tuple(
            Wheel(
                package=file.name.split("-")[0].replace("_", "-"),
                version=build,
                file=file.name,
                arch="x86_64",
                size=file.stat().st_size,
                sha256=digest(file),
            )
            for file in sorted(folder.glob(f"nvidia_cudnn_cu*-{build}-*.whl"))
        )
        short = build.rpartition(".")[0]
        releases.append(Release(version=short, build=build, libraries=tuple(names), wheels=wheels))
    return Matrix(schema=1, updated="2026-11-30", sources={}, releases=tuple(releases))


class World:
    """One environment, with the index and the installer that it is given."""

    def __init__(self, base: Path, prefix: Path, index: WheelIndex, matrix: Matrix) -> None:
        self.base, self.prefix, self.index, self.matrix = base, prefix, index, matrix
        self.site = prefix / SITE
        self.state = State(base / "state", base / "cache")

    def machine(self) -> Machine:
        host = Host("/", {"HOME": str(self.base), "PATH": "/no-programs"})
        return Machine(environments=probe_environments(host, [str(self.prefix)]))

    def plan(self, version: str, cuda: str = "12", break_pins: bool = False) -> Plan:
        request = InstallRequest(
            method="wheel",
            version=version,
            cuda=cuda,
            python=str(self.prefix),
            break_pins=break_pins,
        )
        return plan_wheel(request, self.machine(), self.matrix)

    def install(self, version: str, cuda: str = "12", break_pins: bool = False) -> Path:
        """Plan and carry out; returns the receipt's folder."""
        return executor.execute(self.plan(version, cuda, break_pins), self.state, Silent())

    def put(self, *names: str) -> None:
        """Install wheels of the index, named as in ``name-version``, as somebody else would."""
        files = [next(self.index.folder.glob(f"{name}-*.whl")) for name in names]
        fakewheels.install(self.prefix, *files)

    def versions(self) -> dict[str, str]:
        """NVIDIA's distributions as their metadata tells, damaged ones marked."""
        (environment,) = (e for e in self.machine().environments if e.prefix == str(self.prefix))
        return {
            d.name: d.version + (" damaged" if d.record_problems else "")
            for d in environment.distributions
            if d.name.startswith("nvidia-")
        }

    def tree(self) -> dict[str, bytes]:
        """Contents of all files of the environment's packages but compiled ones."""
        return {
            str(path.relative_to(self.site)): path.read_bytes()
            for path in sorted(self.site.rglob("*"))
            if path.is_file() and path.suffix != ".pyc"
        }


def make_template(folder: Path) -> Path:
    """A virtual environment with pip, to be copied."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    return folder


def environ_for(index: WheelIndex, tool: str, base: Path) -> dict[str, str]:
    """Variables under which only the given tool is found, and only the given index."""
    programs = base / "programs"
    programs.mkdir()
    if tool == "uv":
        import uv

        (programs / "uv").symlink_to(uv.find_uv_bin())
    return {
        "PATH": f"{programs}:/usr/bin:/bin",
        "PIP_INDEX_URL": index.url,
        "PIP_FIND_LINKS": "",
        "PIP_RETRIES": "0",
        "PIP_CACHE_DIR": str(base / "pip-cache"),
        "PIP_CONFIG_FILE": os.devnull,
        "UV_DEFAULT_INDEX": index.url,
        "UV_CACHE_DIR": str(base / "uv-cache"),
        "UV_HTTP_RETRIES": "0",
        "UV_NO_CONFIG": "1",
    }


def encode(plan: Plan) -> str:
    """The plan as JSON, for another process."""
    return msgspec.json.encode(plan).decode()
