"""A signed pacman repository with Arch Linux's names."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support import fakewheels
from support.signing import SigningKey


def build_package(
    folder: Path,
    name: str,
    version: str,
    files: dict[str, Path],
    depends: Sequence[str],
    key: SigningKey,
) -> Path:
    """One package with its signature."""
    tree = folder / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    for place, source in files.items():
        (tree / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, tree / place, follow_symlinks=False)
    lines = [f"pkgname = {name}", f"pkgbase = {name}", f"pkgver = {version}", "pkgdesc = stand-in"]
    lines += ["builddate = 1700000000", "packager = Test", "size = 1", "arch = any"]
    lines += ["group = nvidia"] if name == "cudnn" else []
    lines += [f"depend = {depend}" for depend in depends]
    (tree / ".PKGINFO").write_text("\n".join([*lines, ""]))
    target = folder / f"{name}-{version}-any.pkg.tar.xz"
    names = sorted(path.name for path in tree.iterdir())
    subprocess.run(["tar", "-cJf", str(target), "-C", str(tree), *names], check=True)
    shutil.rmtree(tree)
    key.gpg("--detach-sign", "--output", f"{target}.sig", str(target))
    return target


def publish(folder: Path, build: str, scratch: Path, key: SigningKey) -> None:
    """The repository ``extra`` as it is on one day: one version of each package."""
    libraries = scratch / f"cudnn-{build}"
    if not libraries.exists():
        fakewheels.cudnn_folder(libraries, build)
    files = {f"usr/lib/{path.name}": path for path in libraries.iterdir()}
    packages = [
        build_package(folder, "filesystem", "2026.1-1", {}, [], key),
        build_package(folder, "cuda", "13.0.2-1", {}, [], key),
        build_package(folder, "cudnn", f"{build}-1", files, ["cuda"], key),
    ]
    entries = scratch / "entries"
    shutil.rmtree(entries, ignore_errors=True)
    for package in packages:
        name, version, release, _ = package.name.rsplit("-", 3)
        entry = entries / f"{name}-{version}-{release}"
        entry.mkdir(parents=True)
        (entry / "desc").write_text(_description(package, name, f"{version}-{release}"))
    index = folder / "extra.db"
    names = sorted(path.name for path in entries.iterdir())
    subprocess.run(["tar", "-czf", str(index), "-C", str(entries), *names], check=True)
    key.gpg("--detach-sign", "--output", f"{index}.sig", str(index))


def _description(package: Path, name: str, version: str) -> str:
    """An entry of the index, as repo-add writes it."""
    signature = base64.b64encode(Path(f"{package}.sig").read_bytes()).decode()
    fields = {
        "FILENAME": package.name,
        "NAME": name,
        "VERSION": version,
        "CSIZE": str(package.stat().st_size),
        "ISIZE": "1",
        "SHA256SUM": hashlib.sha256(package.read_bytes()).hexdigest(),
        "PGPSIG": signature,
        "ARCH": "any",
        **({"DEPENDS": "cuda"} if name == "cudnn" else {}),
    }
    return "".join(f"%{field}%\n{value}\n\n" for field, value in fields.items())
