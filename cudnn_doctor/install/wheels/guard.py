"""Keep installed packages safe while an installer works over them.

The folder of a top-level package (``nvidia``) and the metadata of all distributions in it are
hard-linked into a folder beside them: that takes milliseconds and no space. pip and uv replace
recorded files by new ones and never write into them, so the links keep the old contents. Files that
no distribution recorded might be written into: those are copied.

Undoing makes that folder and that metadata what they were, whatever the installer left behind, the
``~`` folders into which pip renames what it is about to remove included.

After the commit the links to what was replaced stay, under the receipt's name: a rollback needs no
index. They go with the next change there.
"""

from __future__ import annotations

import contextlib
import csv
import filecmp
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from cudnn_doctor.errors import BadInput, NothingChanged
from cudnn_doctor.install import records
from cudnn_doctor.install.folders import listed
from cudnn_doctor.install.plan import AnyStep, GuardPackages, RestoreWheels, Run

_MANIFEST = "manifest.json"
_KEPT = ".cudnn-doctor-kept-"


def _folder(step: GuardPackages, saved: Path) -> Path:
    return Path(step.site_packages) / f".cudnn-doctor-guard-{saved.name}"


def guard(step: GuardPackages, saved: Path) -> None:
    """Keep all files of the named packages aside; raises DoctorError when it cannot."""
    site = Path(step.site_packages)
    store = _folder(step, saved)
    saved.mkdir(parents=True, exist_ok=True)
    _check_links(site, step.names)
    try:
        shutil.rmtree(store, ignore_errors=True)
        store.mkdir()
        recorded = _recorded(site, step.names)
        kept = sorted(_files(site, step.names))
        for name in kept:
            (store / name).parent.mkdir(parents=True, exist_ok=True)
            _keep(site / name, store / name, link=name in recorded)
        for name in _empty(site, step.names):
            (store / name).mkdir(parents=True)
        records.write(saved / _MANIFEST, kept)
    except OSError as error:
        raise NothingChanged(
            f"cannot keep the installed packages safe: {os.strerror(error.errno or 0)}",
            where=str(site),
            next_step="choose an environment that you may write and that has space",
        ) from error


def _check_links(site: Path, names: tuple[str, ...]) -> None:
    """What an installer writes through a link to a folder elsewhere could not be undone."""
    inside = f"{os.path.realpath(site)}/"
    for top in _tops(site, names):
        for path in (top, *(site / name for name in _files(site, (top.name,)))):
            if path.is_symlink() and path.is_dir():
                if os.path.realpath(path).startswith(inside):
                    continue
                raise NothingChanged(
                    f"it leads to a folder elsewhere, {os.path.realpath(path)}: a change there "
                    "could not be undone",
                    where=str(path),
                    next_step="put a folder in the link's place, or use another environment",
                )


def unguard(step: GuardPackages, saved: Path) -> None:
    """Bring the named packages back to what was kept, whatever the installer left."""
    manifest = saved / _MANIFEST
    site, store = Path(step.site_packages), _folder(step, saved)
    if manifest.is_file():
        kept: list[str] = records.read(manifest, list[str])
        for name in set(_files(site, step.names)) - set(kept):
            (site / name).unlink(missing_ok=True)
            _prune(site, site / name)
        for name in kept:
            if os.path.lexists(store / name):
                _put_back(store / name, site / name)
        empty = _empty(store, step.names)
        for name in empty:
            (site / name).mkdir(parents=True, exist_ok=True)
        _prune_empty(site, step.names, empty)
    shutil.rmtree(store, ignore_errors=True)


def finish_guard(step: GuardPackages, saved: Path, receipt: str | None) -> None:
    """After the commit what was replaced stays for a rollback of ``receipt`` (None: it goes), and
    what earlier changes left goes, the folders that became empty included."""
    site, store = Path(step.site_packages), _folder(step, saved)
    own = site / f"{_KEPT}{receipt}"
    were_empty = {name for old in (store, *kept(site)) for name in _empty(old, step.names)}
    _prune_empty(site, step.names, were_empty)
    for old in kept(site):
        if old != own:
            shutil.rmtree(old, ignore_errors=True)
    if receipt and store.is_dir():
        _let_go_of_unchanged(store, site, step.names)
        if store.is_dir():
            left = [str(path.relative_to(store)) for path in store.rglob("*")]
            records.write(store / _MANIFEST, left)
            store.rename(own)
    shutil.rmtree(store, ignore_errors=True)


def kept(site: Path) -> list[Path]:
    """Folders in which replaced files are kept: one, as a rule."""
    return listed(site, f"{_KEPT}*")


def from_kept(steps: Iterable[AnyStep], receipt: str) -> Iterator[AnyStep]:
    """The way back of a receipt with the kept files, where they are, in place of an index."""
    store: Path | None = None
    for step in steps:
        if isinstance(step, GuardPackages):
            folder = Path(step.site_packages, f"{_KEPT}{receipt}")
            store = folder if _is_whole(folder) else None
        if store is None or not isinstance(step, Run):
            yield step
        elif not step.stdin:  # it uninstalls; with a list on its input it would fetch
            infos = (path.parent.name for path in store.glob("*.dist-info/RECORD"))
            names = (info.partition("-")[0].replace("_", "-") for info in infos)
            more = (name for name in names if name not in step.argv)
            yield msgspec.structs.replace(step, argv=(*step.argv, *more))
            title = f"put the replaced files back from {store}"
            yield RestoreWheels(title=title, site_packages=str(store.parent), store=str(store))


def restore(step: RestoreWheels, _: Path) -> None:
    """Put all kept files and empty folders back; raises OSError. Undone by the guard before it."""
    store, site = Path(step.store), Path(step.site_packages)
    for path in sorted(set(store.rglob("*")) - {store / _MANIFEST}):
        if path.is_symlink() or not path.is_dir():
            _put_back(path, site / path.relative_to(store))
        else:
            (site / path.relative_to(store)).mkdir(parents=True, exist_ok=True)


def _is_whole(store: Path) -> bool:
    """Whether all is there that was kept."""
    try:
        names = records.read(store / _MANIFEST, list[str])
    except BadInput:
        return False
    return all(os.path.lexists(store / name) for name in names)


def _let_go_of_unchanged(store: Path, site: Path, names: tuple[str, ...]) -> None:
    """What is still in its place needs no keeping, unless a rollback uninstalls it first."""
    going = _replaced(store, site, names)
    empty = [store / name for name in _empty(store, names)]
    for path in store.rglob("*"):
        name = path.relative_to(store)
        if str(name) not in going and (not path.is_dir() or path.is_symlink()):
            with contextlib.suppress(OSError):
                if _is_same(path, site / name):
                    path.unlink()
    for folder, _, _ in os.walk(store, topdown=False):
        if Path(folder) not in empty:
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def _replaced(store: Path, site: Path, names: tuple[str, ...]) -> set[str]:
    """Files of the distributions that the installer brought, took or replaced, even by the same:
    it wrote their RECORD anew."""
    found: set[str] = set()
    for here, there in ((store, site), (site, store)):
        for info in _infos(here, names):
            if not _is_untouched(info / "RECORD", there / info.name / "RECORD"):
                found |= _files_of(here, info)
    return found


def _is_untouched(one: Path, other: Path) -> bool:
    """Whether both are one file, or a copy with its time."""
    try:
        return one.stat().st_mtime_ns == other.stat().st_mtime_ns and filecmp.cmp(one, other)
    except OSError:
        return False


def _is_same(kept: Path, place: Path) -> bool:
    """Whether both are one file, or one is the other's copy; raises OSError."""
    if os.path.samestat(kept.lstat(), place.lstat()):
        return True
    return not kept.is_symlink() and not place.is_symlink() and filecmp.cmp(kept, place)


def _keep(source: Path, target: Path, *, link: bool) -> None:
    if link or source.is_symlink():
        with contextlib.suppress(OSError):  # file systems without links, files of other users
            os.link(source, target, follow_symlinks=False)
            return
    shutil.copy2(source, target, follow_symlinks=False)


def _put_back(kept: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(target.name + ".cudnn-doctor-new")
    fresh.unlink(missing_ok=True)
    _keep(kept, fresh, link=True)
    os.replace(fresh, target)
    fresh.unlink(missing_ok=True)  # replacing a link by itself leaves both


def _tops(site: Path, names: tuple[str, ...]) -> list[Path]:
    """What belongs to the named top-level packages: folder, metadata, pip's renamed leftovers."""
    found = []
    for entry in site.iterdir():
        name = entry.name
        # pip replaces the first characters of what it will remove: ``~vidia``, ``~-idia``.
        tail = name.lstrip("-~.=%0123456789") if name.startswith("~") else ""
        for package in names:
            is_metadata = name.startswith((f"{package}_", f"{package}-"))
            is_metadata = is_metadata and name.endswith(".dist-info")
            if name == package or is_metadata or (tail and _is_tail(tail, package)):
                found.append(entry)
    return found


def _is_tail(tail: str, package: str) -> bool:
    """Whether ``tail`` is ``package`` or its metadata without some first characters."""
    word = tail.partition("_")[0]
    return len(word) > 1 and package.endswith(word)


def _files(site: Path, names: tuple[str, ...]) -> Iterator[str]:
    """Relative paths of all files and links in there."""
    for top in _tops(site, names):
        if top.is_symlink() or not top.is_dir():
            yield top.name
            continue
        for folder, folders, files in os.walk(top):
            linked = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            for name in (*files, *linked):
                yield os.path.relpath(os.path.join(folder, name), site)


def _infos(site: Path, names: tuple[str, ...]) -> list[Path]:
    """The metadata folders among them."""
    return [top for top in _tops(site, names) if top.name.endswith(".dist-info")]


def _recorded(site: Path, names: tuple[str, ...]) -> set[str]:
    """Relative paths that some RECORD in there lists."""
    return {name for info in _infos(site, names) for name in _files_of(site, info)}


def _files_of(site: Path, info: Path) -> set[str]:
    """Relative paths of a distribution's files, its metadata included."""
    found = {str(path.relative_to(site)) for path in info.rglob("*")}
    with contextlib.suppress(OSError, csv.Error):
        rows = csv.reader((info / "RECORD").read_text("utf-8", "replace").splitlines())
        found.update(os.path.normpath(row[0]) for row in rows if row)
    return found


def _prune(site: Path, path: Path) -> None:
    """Remove folders that became empty, up to ``site``."""
    for folder in path.parents:
        if folder == site:
            return
        try:
            folder.rmdir()
        except OSError:
            return


def _empty(site: Path, names: tuple[str, ...]) -> set[str]:
    """Relative paths of the folders in there that hold nothing."""
    walks = (os.walk(top) for top in _tops(site, names) if not top.is_symlink())
    found = (folder for walk in walks for folder, folders, files in walk if not (folders or files))
    return {os.path.relpath(folder, site) for folder in found}


def _prune_empty(site: Path, names: tuple[str, ...], but: set[str]) -> None:
    """Remove empty folders that an installer left, ``but`` some: they are no damage."""
    for top in _tops(site, names):
        for folder, _, _ in os.walk(top, topdown=False) if not top.is_symlink() else ():
            if os.path.relpath(folder, site) not in but:
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
