"""Keep installed wheels safe while an installer works over them.

The files of the named distributions are hard-linked into a folder beside them: that takes
milliseconds and no space. pip and uv replace files by new ones and never write into old ones, so
the links keep the old contents.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import shutil
from pathlib import Path

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install.plan import GuardPackages

_MANIFEST = "manifest.json"


def _folder(step: GuardPackages, saved: Path) -> Path:
    return Path(step.site_packages) / f".cudnn-doctor-guard-{saved.name}"


def guard(step: GuardPackages, saved: Path) -> None:
    """Link all files of the named distributions aside; raises DoctorError when it cannot."""
    site = Path(step.site_packages)
    store = _folder(step, saved)
    saved.mkdir(parents=True, exist_ok=True)
    try:
        shutil.rmtree(store, ignore_errors=True)
        store.mkdir()
        kept = _owned(site, step.names)
        for name in kept:
            target = store / name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(site / name, target, follow_symlinks=False)
    except OSError as error:
        raise DoctorError(
            f"cannot keep the installed packages safe: {os.strerror(error.errno or 0)}",
            where=str(site),
            next_step="choose an environment that you may write",
            exit_code=ExitCode.NOTHING_CHANGED,
        ) from error
    (saved / _MANIFEST).write_text(json.dumps(kept), "utf-8")


def unguard(step: GuardPackages, saved: Path) -> None:
    """Bring the named distributions back to what was kept, whatever the installer left."""
    manifest = saved / _MANIFEST
    site, store = Path(step.site_packages), _folder(step, saved)
    if manifest.is_file():
        kept: list[str] = json.loads(manifest.read_text("utf-8"))
        for name in set(_owned(site, step.names)) - set(kept):
            (site / name).unlink(missing_ok=True)
            _prune(site, site / name)
        for name in kept:
            if (store / name).exists():
                target = site / name
                target.parent.mkdir(parents=True, exist_ok=True)
                fresh = target.with_name(target.name + ".cudnn-doctor-new")
                fresh.unlink(missing_ok=True)
                os.link(store / name, fresh, follow_symlinks=False)
                os.replace(fresh, target)
                fresh.unlink(missing_ok=True)  # replacing a link by itself leaves both
    shutil.rmtree(store, ignore_errors=True)


def finish_guard(step: GuardPackages, saved: Path) -> None:
    """After the commit the kept files go."""
    shutil.rmtree(_folder(step, saved), ignore_errors=True)


def _owned(site: Path, names: tuple[str, ...]) -> list[str]:
    """Relative paths of all present files of the named distributions, by their RECORD and, for a
    half-removed one, by what is left of its metadata folder; never outside ``site``."""
    found: set[str] = set()
    for info in site.glob("*.dist-info"):
        if _normalised(info.name.split("-")[0]) not in names:
            continue
        found.update(str(path.relative_to(site)) for path in info.rglob("*") if path.is_file())
        with contextlib.suppress(OSError, csv.Error):
            text = (info / "RECORD").read_text("utf-8", "replace")
            for row in csv.reader(text.splitlines()):
                path = os.path.normpath(row[0]) if row else ".."
                if not path.startswith(("..", "/")) and os.path.lexists(site / path):
                    found.add(path)
    return sorted(found)


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _prune(site: Path, path: Path) -> None:
    """Remove folders that became empty, up to ``site``."""
    for folder in path.parents:
        if folder == site:
            return
        try:
            folder.rmdir()
        except OSError:
            return
