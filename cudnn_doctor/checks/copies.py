"""Rules about one copy of cuDNN: whether its files are all there and of one release."""

from __future__ import annotations

from collections.abc import Iterator

from cudnn_doctor.checks.context import Context, file_of, parse
from cudnn_doctor.checks.files import matters, restore
from cudnn_doctor.checks.model import Evidence, Finding, Remedy
from cudnn_doctor.checks.registry import rule
from cudnn_doctor.machine.model import CudnnCopy, Library
from cudnn_doctor.matrix import query


def shipped(context: Context, copy: CudnnCopy) -> frozenset[str] | None:
    """SONAMEs that this copy's release ships; None where that is not known."""
    if not copy.version:
        return None
    names = query.sublibraries(context.matrix, copy.version, copy.cuda, copy.flavour)
    return frozenset(names) if names else None


def lacking(context: Context, copy: CudnnCopy) -> tuple[str, ...]:
    """Libraries that the copy should have and has not."""
    names = shipped(context, copy)
    if copy.lacks:
        return tuple(name for name in copy.lacks if name != "*" and (not names or name in names))
    if not names or not copy.files or copy.private or context.machine.partial:
        return ()
    return tuple(sorted(names - {_soname(file) for file in copy.files}))


def _soname(file: str) -> str:
    """``libcudnn_ops.so.9.10.2`` -> ``libcudnn_ops.so.9``."""
    stem, so, version = file.partition(".so.")
    return f"{stem}{so}{version.split('.')[0]}"


def releases_in(copy: CudnnCopy) -> dict[tuple[int, ...], list[str]]:
    """The libraries of a copy by the release that each belongs to."""
    found: dict[tuple[int, ...], list[str]] = {}
    for name, version in sorted(copy.file_versions.items()):
        parsed = parse(version)
        if parsed is not None:
            found.setdefault(parsed.release, []).append(name)
    return found


@rule("cudnn-install-incomplete", "cudnn")
def install_incomplete(context: Context) -> Iterator[Finding]:
    """A copy lacks sublibraries that its own release ships."""
    for copy in context.copies:
        missing = lacking(context, copy)
        if not missing or (_is_wheel(copy) and len(missing) > 6):
            continue
        shown = ", ".join(missing)
        yield Finding(
            id="cudnn-install-incomplete",
            severity="error"
            if context.machine.partial or matters(context, copy.folder)
            else "info",
            title=f"cuDNN {copy.version or ''} lacks {missing[0]}"
            + (f" and {len(missing) - 1} more" if len(missing) > 1 else ""),
            culprit=f"{copy.folder}/{missing[0]}",
            subject=copy.folder,
            seen=(
                Evidence(what=f"missing: {shown}", where=copy.folder, how="directory listing"),
                Evidence(what=f"release {copy.version} ships them", how="compat_matrix.yaml"),
            ),
            why="some operations fail with NOT_INITIALIZED or SUBLIBRARY_LOADING_FAILED, others"
            " take slower engines without a word, or the loader picks another release's file.",
            remedies=(restore(context, copy.folder),),
            avoid=("copying the one missing file from another release",),
        )


def _is_wheel(copy: CudnnCopy) -> bool:
    return any(owner.kind == "wheel" for owner in copy.owners)


@rule("cudnn-mixed-in-one-dir", "cudnn")
def mixed_in_one_dir(context: Context) -> Iterator[Finding]:
    """Files of two releases of one major lie in one folder."""
    for copy in context.copies:
        releases = releases_in(copy)
        foreign = _replaced(context, copy)
        if foreign and len(releases) == 1 and not copy.private:
            yield _foreign_file(context, copy, foreign)
        if copy.private or len(releases) < 2 or len({r[0] for r in releases}) > 1:
            continue
        groups = sorted(releases.items(), key=lambda item: -len(item[1]))
        main, odd = _dotted(groups[0][0]), groups[1]
        seen = [
            Evidence(
                what=f"{_dotted(release)}: {', '.join(names)}",
                where=copy.folder,
                how="file names and contents",
            )
            for release, names in groups
        ]
        used = context.machine.partial or matters(context, copy.folder)
        yield Finding(
            id="cudnn-mixed-in-one-dir",
            severity="error" if used else "warning",
            title=f"{odd[1][0]} is {_dotted(odd[0])} among files of {main}",
            culprit=f"{copy.folder}/{odd[1][0]}",
            subject=copy.folder,
            seen=tuple(seen),
            why="sublibraries of different releases do not work together: undefined symbols,"
            " SUBLIBRARY_VERSION_MISMATCH or aborts.",
            remedies=(restore(context, copy.folder),),
            avoid=("making links by hand from one release's names to the other's files",),
        )


def _replaced(context: Context, copy: CudnnCopy) -> list[Library]:
    """Whole libraries of a wheel's folder that are not the wheel's: RECORD has another size."""
    environment = context.environment(copy.environment)
    if environment is None:
        return []
    wrong = {
        file_of(problem.path)
        for dist in environment.distributions
        for problem in dist.record_problems
        if problem.problem in ("size", "hash") and "cudnn" in dist.name
    }
    inside = (context.libraries.get(f"{copy.folder}/{name}") for name in copy.files)
    arch = context.machine.system.arch
    return [
        library
        for library in inside
        if library is not None
        and file_of(library.path) in wrong
        and library.status == "ok"
        and library.machine in (None, arch)
        and "cudnn" in (library.soname or "cudnn")
    ]


def _foreign_file(context: Context, copy: CudnnCopy, foreign: list[Library]) -> Finding:
    names = ", ".join(file_of(library.path) for library in foreign)
    return Finding(
        id="cudnn-mixed-in-one-dir",
        severity="error",
        title=f"{file_of(foreign[0].path)} is not of {copy.version} like the files around it",
        culprit=foreign[0].path,
        subject=copy.folder,
        seen=(
            Evidence(what=f"whole libraries of other sizes than recorded: {names}"),
            Evidence(what=f"the others are {copy.version}", where=copy.folder, how="RECORD"),
        ),
        why="a sublibrary of another release does not work with the rest: undefined symbols,"
        " SUBLIBRARY_VERSION_MISMATCH or aborts.",
        remedies=(restore(context, copy.folder),),
        avoid=("copying single files from another release",),
    )


def _dotted(release: tuple[int, ...]) -> str:
    return ".".join(str(number) for number in release)


@rule("cudnn-symlink-flattened", "cudnn")
def symlink_flattened(context: Context) -> Iterator[Finding]:
    """The names of one library became full copies instead of links."""
    for copy in context.copies:
        flat = _flattened(context, copy)
        if not flat:
            continue
        yield Finding(
            id="cudnn-symlink-flattened",
            severity="warning",
            title=f"{len(flat)} cuDNN links in {copy.folder} are full copies",
            culprit=f"{copy.folder}/{flat[0]}",
            subject=copy.folder,
            seen=(
                Evidence(what=f"regular files: {', '.join(flat)}", where=copy.folder, how="lstat"),
            ),
            why="harmless today; the next update renews one name and leaves the others old, and"
            " ldconfig complains that they are no symbolic links.",
            remedies=(
                Remedy(
                    title="make them links again",
                    commands=tuple(
                        f"ln -sfn {target} {copy.folder}/{name}"
                        for name, target in _targets(copy, flat)
                    ),
                    needs_root=copy.kind in ("system", "toolkit"),
                    changes="links in that folder",
                    safety="caution",
                ),
            ),
            avoid=("unpacking or copying with tools that follow links (cp without -P, zip)",),
        )


def _flattened(context: Context, copy: CudnnCopy) -> list[str]:
    """Names that should be links to a longer name beside them and are files of their own."""
    by_path = context.libraries
    return [
        name
        for name, target in _targets(copy, list(copy.files))
        if (library := by_path.get(f"{copy.folder}/{name}")) is not None
        and library.link is None
        and library.status == "ok"
        and by_path.get(f"{copy.folder}/{target}") is not None
        and by_path[f"{copy.folder}/{target}"].link is None
    ]


def _targets(copy: CudnnCopy, names: list[str]) -> list[tuple[str, str]]:
    """Each name with the next longer one of the same library in the folder."""
    pairs = []
    for name in names:
        longer = [f for f in copy.files if f.startswith(f"{name}.") and ".so" in name]
        if longer:
            pairs.append((name, max(longer, key=len)))
    return pairs
