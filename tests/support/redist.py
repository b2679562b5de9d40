"""Archives in NVIDIA's two layouts, built from small real libraries, and a matrix of them."""

from __future__ import annotations

import hashlib
import io
import random
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Literal

import yaml
from support import fakewheels

Packing = Literal["xz", "xz-blocks", "tgz"]
STATIC = random.Random(1).randbytes(1 << 19)
"""Contents of the static library: half a MiB."""


def archive_name(version: str, cuda: str) -> str:
    """Path below the redist base, in the layout of its time."""
    if int(version.split(".")[0]) == 8 and int(version.split(".")[1]) < 4:
        return f"v{version}/cudnn-{cuda}-linux-x64-v{version}.tgz"
    return f"cudnn/linux-x86_64/cudnn-linux-x86_64-{version}_cuda{cuda}-archive.tar.xz"


def build_archive(base: Path, version: str, cuda: str = "12", *, blocks: bool = False) -> Path:
    """Write one archive below ``base``; ``blocks``: xz of many blocks."""
    target = base / archive_name(version, cuda)
    target.parent.mkdir(parents=True, exist_ok=True)
    plain = target.with_suffix(".tar")
    old = target.suffix == ".tgz"
    with tarfile.open(plain, "w") as tar:
        _members(tar, version, cuda, old=old)
    if old:
        command = ["gzip", "-c", str(plain)]
    else:
        command = ["xz", "-c", "-0", "--threads=2" if blocks else "--threads=1"]
        command += ["--block-size=65536"] if blocks else []
        command += [str(plain)]
    with target.open("wb") as file:
        subprocess.run(command, check=True, stdout=file)
    plain.unlink()
    return target


def _members(tar: tarfile.TarFile, version: str, cuda: str, *, old: bool) -> None:
    top = "cuda" if old else Path(archive_name(version, cuda)).name.removesuffix(".tar.xz")
    lib = f"{top}/lib64" if old else f"{top}/lib"
    licence = f"{top}/NVIDIA_SLA_cuDNN_Support.txt" if old else f"{top}/LICENSE"
    add_file(tar, licence, b"The licence.\n")
    for header in ("cudnn.h", "cudnn_version.h"):
        text = fakewheels.version_header(version)
        add_file(tar, f"{top}/include/{header}", text.encode())
    short = ".".join(version.split(".")[:3])
    for name, path in fakewheels.cudnn_libraries(version, cuda.split(".")[0]).items():
        stem = name.rsplit(".so.", 1)[0]
        add_file(tar, f"{lib}/{stem}.so.{short}", path.read_bytes(), 0o755)
        add_link(tar, f"{lib}/{name}", f"{stem}.so.{short}")
        add_link(tar, f"{lib}/{stem}.so", name)
    add_file(tar, f"{lib}/libcudnn_static.a", STATIC)


def add_file(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    """Add a member with these bytes."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    tar.addfile(info, io.BytesIO(data))


def add_link(tar: tarfile.TarFile, name: str, target: str) -> None:
    """Add a symbolic link."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    tar.addfile(info)


def sha256(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_matrix(
    path: Path,
    archives: dict[tuple[str, str], Path],
    *,
    base: str = "http://127.0.0.1:9/",
    wheels: dict[tuple[str, str], Path] | None = None,
) -> Path:
    """A matrix of these archives and wheels, keyed by build and CUDA."""
    builds = sorted({build for build, _ in (*archives, *(wheels or {}))}, key=_number)
    releases = [_release(build, archives, wheels or {}) for build in builds]
    document = {
        "schema": 1,
        "updated": "2026-11-30",
        "sources": {"test": {"how": "measured", "title": "a test"}},
        "redist_base": base,
        "legacy_base": base,
        "archive_source": "test",
        "wheel_source": "test",
        "releases": releases,
    }
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


def _release(
    build: str, archives: dict[tuple[str, str], Path], wheels: dict[tuple[str, str], Path]
) -> dict[str, Any]:
    major = build.split(".")[0]
    names = [f"libcudnn_{name}.so.{major}" for name in fakewheels.sublibraries(build)]
    cudas = sorted({cuda for b, cuda in (*archives, *wheels) if b == build})
    return {
        "version": ".".join(build.split(".")[:3]),
        "build": build,
        "source": "test",
        "libraries": [f"libcudnn.so.{major}", *names],
        "variants": [{"cuda": cuda, "source": "test"} for cuda in cudas],
        "archives": [
            {
                "platform": "linux-x86_64",
                "cuda": cuda,
                "path": archive_name(build, cuda),
                "sha256": sha256(path),
                "size": path.stat().st_size,
                "legacy": path.suffix == ".tgz",
            }
            for (b, cuda), path in archives.items()
            if b == build
        ],
        "wheels": [
            {
                "package": f"nvidia-cudnn-cu{cuda}",
                "version": build,
                "file": path.name,
                "arch": "x86_64",
                "sha256": sha256(path),
                "size": path.stat().st_size,
            }
            for (b, cuda), path in wheels.items()
            if b == build
        ],
    }


def _number(build: str) -> list[int]:
    return [int(part) for part in build.split(".")]
