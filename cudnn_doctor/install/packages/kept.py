"""Installed packages kept aside while others take their place, so that they can come back although
no repository serves them any more.

Their files are hard-linked into a store beside them, which takes neither time nor space, because
package managers replace files and never write into them; what the manager's database says of them
is written down. A package file is built of both only when it is wanted.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from cudnn_doctor.errors import NothingChanged
from cudnn_doctor.install.packages.manager import TREE, Manager, output_of

STORE = Path("/usr/lib/.cudnn-doctor-kept")
_BUILT = ".built"


def keep(manager: Manager, names: Iterable[str], installed: Mapping[str, str]) -> None:
    """Keep the named packages, of all architectures; raises DoctorError when that cannot be."""
    wanted = [re.compile(rf"{re.escape(name)}([:.]\w+)?") for name in names]
    for name, version in installed.items():
        if any(pattern.fullmatch(name) for pattern in wanted) and " " not in version:
            _keep_one(manager, name, version)


def build(manager: Manager, packages: Mapping[str, str]) -> dict[str, str]:
    """Package files of those among ``packages`` (name -> version) that are kept."""
    built = STORE / _BUILT
    shutil.rmtree(built, ignore_errors=True)
    files: dict[str, str] = {}
    for name, version in packages.items():
        folder = _folder(name, version)
        if folder.is_dir():
            built.mkdir(exist_ok=True)
            files[name] = manager.repack(folder, str(built / f"{len(files)}"))
    return files


def settle(installed: Mapping[str, str], before: Mapping[str, str] | None = None) -> None:
    """Let go of what is installed and of what is half kept; with ``before``, which was installed
    when the change began that is done now, also of what an earlier change replaced."""
    for folder in STORE.glob("*"):
        name, _, version = folder.name.partition("=")
        old = before is not None and before.get(name) != version
        if old or installed.get(name) == version or folder.name.startswith("."):
            shutil.rmtree(folder, ignore_errors=True)
    if STORE.is_dir() and not any(STORE.iterdir()):
        STORE.rmdir()


def forget() -> None:
    """Let go of everything."""
    shutil.rmtree(STORE, ignore_errors=True)


def _folder(name: str, version: str) -> Path:
    return STORE / f"{name}={version}"


def _keep_one(manager: Manager, name: str, version: str) -> None:
    folder = _folder(name, version)
    fresh = STORE / f".{folder.name}"
    shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        (fresh / TREE).mkdir(parents=True)
        for path in output_of(manager.files_of(name)).splitlines():
            if path.startswith("/") and os.path.lexists(path):
                _place(path.rstrip("/"), fresh / TREE / path.strip("/"))
        manager.describe(name, version, fresh)
        fresh.rename(folder)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise NothingChanged(
            f"the installed {name} cannot be kept for an undo: {error}",
            where=str(STORE),
            next_step="free some space there, or remove that package first",
        ) from error


def _place(source: str, target: Path) -> None:
    """Link a file, or make a folder with the same owner and mode."""
    if os.path.isdir(source) and not os.path.islink(source):
        target.mkdir(parents=True, exist_ok=True)
        shutil.copystat(source, target)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK):
            raise
        shutil.copy2(source, target, follow_symlinks=False)
