"""A signed apt repository in NVIDIA's layout, with its package names, versions and dependencies."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support import fakewheels
from support.signing import SigningKey

BUILDS = ("9.1.0.70", "9.10.2.21", "9.12.0.46")
FOLDER = "usr/lib/x86_64-linux-gnu"


INCLUDE = "usr/include/x86_64-linux-gnu"
_CHOICE = """#!/bin/sh
set -e
update-alternatives --install /usr/include/cudnn.h libcudnn /{include}/cudnn_v{major}.h {major}0 \\
  --slave /{folder}/libcudnn.so libcudnn_so /{folder}/libcudnn.so.{major}
"""
_NO_CHOICE = """#!/bin/sh
set -e
update-alternatives --remove libcudnn /{include}/cudnn_v{major}.h
"""


def build_deb(
    folder: Path,
    name: str,
    version: str,
    files: dict[str, Path],
    fields: Sequence[str] = (),
    *,
    alternative: str = "",
) -> None:
    """One binary package; ``files`` are places and what is put there (links stay links).

    ``alternative``: cuDNN's major, for which its scripts offer a header and a link, as NVIDIA's
    development packages do.
    """
    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    (tree / "DEBIAN").mkdir(parents=True)
    head = (f"Package: {name}", f"Version: {version}", "Architecture: amd64", *fields)
    rest = ("Maintainer: cudatools <cudatools@example.org>", "Description: a stand-in", "")
    (tree / "DEBIAN/control").write_text("\n".join((*head, *rest)))
    scripts = {"postinst": _CHOICE, "prerm": _NO_CHOICE} if alternative else {}
    for script, text in scripts.items():
        words = {"include": INCLUDE, "folder": FOLDER, "major": alternative}
        (tree / "DEBIAN" / script).write_text(text.format(**words))
        (tree / "DEBIAN" / script).chmod(0o755)
    for place, source in files.items():
        (tree / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, tree / place, follow_symlinks=False)
    target = folder / f"{name}_{version.replace(':', '')}_amd64.deb"
    subprocess.run(
        ["dpkg-deb", "-Znone", "--build", str(tree), str(target)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    shutil.rmtree(tree)


def _libraries(scratch: Path, build: str) -> dict[str, Path]:
    """Run-time files of a release: place -> file or link."""
    folder = scratch / f"cudnn-{build}"
    if not folder.exists():
        fakewheels.cudnn_folder(folder, build)
    return {f"{FOLDER}/{path.name}": path for path in folder.iterdir() if path.suffix != ".so"}


def _header(scratch: Path, build: str) -> Path:
    header = scratch / f"cudnn_version-{build}.h"
    header.write_text(fakewheels.version_header(build))
    return header


def build_packages(folder: Path, scratch: Path) -> None:
    """cuDNN 9 of three builds for CUDA 12 (run time, headers, dev, JIT), cuDNN 8, a cuBLAS and the
    distribution's own package."""
    for build in BUILDS:
        same = f"{build}-1"
        libraries, header = _libraries(scratch, build), _header(scratch, build)
        place = f"{INCLUDE}/cudnn_version_v9.h"
        build_deb(
            folder,
            "libcudnn9-cuda-12",
            same,
            libraries,
            ["Depends: libcublas-12-8", "Priority: optional"],
        )
        build_deb(folder, "libcudnn9-headers-cuda-12", same, {place: header})
        needs = f"libcudnn9-cuda-12 (= {same}), libcudnn9-headers-cuda-12 (= {same})"
        needs = f"Depends: {needs}"
        dev = {f"{INCLUDE}/cudnn_v9.h": header}
        build_deb(folder, "libcudnn9-dev-cuda-12", same, dev, [needs], alternative="9")
        excludes = ["Conflicts: libcudnn9-cuda-12, libcudnn9-dev-cuda-12"]
        jit = {place: path for place, path in libraries.items() if fakewheels.JIT.match(path.name)}
        build_deb(folder, "libcudnn9-jit-cuda-12", same, jit, excludes)
    for build in ("8.9.6.50", "8.9.7.29"):
        same = f"{build}-1+cuda12.2"
        build_deb(folder, "libcudnn8", same, _libraries(scratch, build))
        needs, dev = f"Depends: libcudnn8 (= {same})", {f"{INCLUDE}/cudnn_v8.h": header}
        build_deb(folder, "libcudnn8-dev", same, dev, [needs], alternative="8")
    build_deb(folder, "libcublas-12-8", "12.8.4.1-1", {})
    build_deb(folder, "nvidia-cudnn", "8.5.0.96~cuda11.7", {})
    build_deb(folder, "a-framework", "1.0", {}, ["Depends: nvidia-cudnn"])


def sign_repository(folder: Path, key: SigningKey, key_name: str) -> None:
    """Write the index of a flat repository and sign it."""
    listed = subprocess.run(
        ["apt-ftparchive", "packages", "."], cwd=folder, check=True, capture_output=True
    )
    (folder / "Packages").write_bytes(listed.stdout)
    for name in ("Release", "InRelease", "Release.gpg"):
        (folder / name).unlink(missing_ok=True)
    told = subprocess.run(
        ["apt-ftparchive", "release", "."], cwd=folder, check=True, capture_output=True
    )
    (folder / "Release").write_bytes(told.stdout)
    key.sign(folder / "Release", folder / "Release.gpg")
    key.sign(folder / "Release", folder / "InRelease", "--clearsign")
    (folder / key_name).write_bytes(key.public())
