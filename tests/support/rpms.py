"""A signed rpm repository in NVIDIA's layout, with its package names, versions and dependencies."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support import fakewheels
from support.signing import SigningKey

BUILDS = ("9.1.0.70", "9.10.2.21", "9.12.0.46")


def build_rpm(
    folder: Path,
    name: str,
    version: str,
    files: dict[str, Path],
    tags: Sequence[str] = (),
    *,
    build_ids: bool = False,
) -> None:
    """One binary package; ``files`` are places and what is put there (links stay links).

    ``build_ids``: with links of the build ids, as distributions have them and NVIDIA has not.
    """
    top = folder / "build"
    shutil.rmtree(top, ignore_errors=True)
    tree = top / "source"
    for place, source in files.items():
        (tree / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, tree / place, follow_symlinks=False)
    spec = [f"Name: {name}", f"Version: {version}", "Release: 1", "Summary: a stand-in"]
    spec += ["License: none", "AutoReqProv: no", *tags]
    spec += [
        f"%global _build_id_links {'compat' if build_ids else 'none'}",
        "%global debug_package %{nil}",
        "%global __os_install_post %{nil}",
        "%description",
    ]
    spec += ["A stand-in.", "%install", "mkdir -p %{buildroot}"]
    spec += [f"cp -a {tree}/. %{{buildroot}}/"] if files else []
    spec += ["%files", *(f"/{place}" for place in files), ""]
    top.mkdir(exist_ok=True)
    (top / "one.spec").write_text("\n".join(spec))
    options = ["--define", f"_topdir {top}", "--define", f"_rpmdir {folder}", "--quiet"]
    options += ["--define", "_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm"]
    subprocess.run(["rpmbuild", "-bb", *options, str(top / "one.spec")], check=True)
    shutil.rmtree(top)


def build_packages(folder: Path, scratch: Path, *, build_ids: bool = False) -> None:
    """cuDNN 9 of three builds for CUDA 12 (run time, devel, JIT), a cuBLAS, and a
    glibc, without which zypper believes the system broken."""
    for build in BUILDS:
        libraries = scratch / f"cudnn-{build}"
        if not libraries.exists():
            fakewheels.cudnn_folder(libraries, build)
        files = {f"usr/lib64/{p.name}": p for p in libraries.iterdir() if p.suffix != ".so"}
        header = scratch / "cudnn_version_v9.h"
        header.write_text(fakewheels.version_header(build))
        needs = ["Requires: libcublas-12-8"]
        build_rpm(folder, "libcudnn9-cuda-12", build, files, needs, build_ids=build_ids)
        needs = [f"Requires: libcudnn9-cuda-12 = {build}-1"]
        build_rpm(
            folder, "libcudnn9-devel-cuda-12", build, {f"usr/include/{header.name}": header}, needs
        )
        excludes = ["Conflicts: libcudnn9-cuda-12"]
        jit = {place: path for place, path in files.items() if fakewheels.JIT.match(path.name)}
        build_rpm(folder, "libcudnn9-jit-cuda-12", build, jit, excludes)
    build_rpm(folder, "libcublas-12-8", "12.8.4.1", {})
    build_rpm(folder, "glibc", "2.34", {})
    build_rpm(folder, "a-framework", "1.0", {}, ["Requires: libcudnn9-cuda-12"])


def sign_repository(folder: Path, key: SigningKey, key_name: str) -> None:
    """Sign the packages, write the index and sign it."""
    packages = [str(path) for path in folder.glob("*.rpm")]
    options = ["--define", f"_gpg_name {key.fingerprint}", "--define", f"_gpg_path {key.home}"]
    options += ["--define", f"__gpg {shutil.which('gpg')}"]
    subprocess.run(
        ["rpmsign", *options, "--addsign", *packages], check=True, stdout=subprocess.DEVNULL
    )
    subprocess.run(["createrepo_c", "--quiet", str(folder)], check=True)
    index = folder / "repodata/repomd.xml"
    key.sign(index, index.with_name("repomd.xml.asc"))
    index.with_name("repomd.xml.key").write_bytes(key.public())
    (folder / key_name).write_bytes(key.public())
