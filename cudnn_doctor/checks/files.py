"""Rules about single library files: damaged, of the wrong architecture, or not what they say."""

from __future__ import annotations

from collections.abc import Iterator

from cudnn_doctor.checks import remedies
from cudnn_doctor.checks.context import Context, cudnn_wheels, file_of, folder_of
from cudnn_doctor.checks.model import Evidence, Finding, Remedy, Severity
from cudnn_doctor.checks.registry import Skip, rule
from cudnn_doctor.machine.model import CudnnCopy, Library


def cudnn_files(context: Context) -> list[Library]:
    """All files and links that carry a cuDNN library's name."""
    found = [x for x in context.machine.libraries if file_of(x.path).startswith("libcudnn")]
    if not found:
        raise Skip("no cuDNN library files are known")
    return found


def matters(context: Context, folder: str) -> bool:
    """Whether a copy there is meant to be used: found by a loader, or put there by a package."""
    copy = context.copy_at(folder)
    if folder in context.used_folders() or folder in context.search_path:
        return True
    if copy is None:
        return False
    packaged = any(owner.kind not in ("none",) for owner in copy.owners)
    return packaged or copy.environment is not None or copy.kind in ("wheel", "system", "conda")


def restore(context: Context, folder: str, path: str = "") -> Remedy:
    """Put the files of a copy back by whoever installed them."""
    copy = context.copy_at(folder)
    if copy is not None and copy.environment is not None:
        environment = context.environment(copy.environment)
        wheels = cudnn_wheels(environment) if environment else []
        if wheels:
            return remedies.reinstall_wheels(environment, f"{wheels[0].name}=={wheels[0].version}")
    for owner in copy.owners if copy else ():
        if owner.kind in ("dpkg", "rpm", "pacman"):
            return _reinstall_package(context, owner.name)
    return _by_hand(context, copy, path or folder)


def _reinstall_package(context: Context, name: str) -> Remedy:
    command = {
        "dnf": f"dnf reinstall -y {name}",
        "zypper": f"zypper --non-interactive install --force {name}",
        "pacman": f"pacman -S {name}",
    }.get(remedies.manager(context) or "", f"apt-get install --reinstall -y {name}")
    return Remedy(
        title=f"reinstall the package {name}",
        commands=(remedies.as_root(context, command),),
        needs_root=True,
        changes="that package's files",
    )


def _by_hand(context: Context, copy: CudnnCopy | None, path: str) -> Remedy:
    version = f" {copy.version}" if copy and copy.version else ""
    return Remedy(
        title=f"unpack cuDNN{version} again over {path}, whole, or take that folder away",
        safety="caution",
    )


def _severity(context: Context, library: Library) -> Severity:
    return "error" if matters(context, folder_of(library.path)) else "warning"


@rule("cudnn-file-damaged", "cudnn")
def file_damaged(context: Context) -> Iterator[Finding]:
    """A cuDNN library is truncated or no ELF file: opening it fails, or kills the process."""
    for library in cudnn_files(context):
        if library.status not in ("truncated", "not-elf"):
            continue
        size = f", {library.size} bytes" if library.size is not None else ""
        said = "is truncated" if library.status == "truncated" else "is not an ELF library"
        yield Finding(
            id="cudnn-file-damaged",
            severity=_severity(context, library),
            title=f"{file_of(library.path)} {said}",
            culprit=library.path,
            subject=folder_of(library.path),
            seen=(Evidence(what=f"{said}{size}", where=library.path, how="ELF header"),),
            why="mapping a truncated library ends the process with SIGBUS and no message; another"
            " format is refused as 'invalid ELF header' or 'file too short'.",
            remedies=(restore(context, folder_of(library.path), library.path),),
        )


@rule("cudnn-wrong-architecture", "cudnn")
def wrong_architecture(context: Context) -> Iterator[Finding]:
    """A cuDNN library is built for another CPU than this machine's."""
    arch = context.machine.system.arch
    if arch is None:
        raise Skip("the CPU architecture is not known")
    for library in cudnn_files(context):
        if library.machine in (None, arch) and library.elf_class in (None, 64):
            continue
        yield Finding(
            id="cudnn-wrong-architecture",
            severity=_severity(context, library),
            title=f"{file_of(library.path)} is built for {library.machine}, this machine is {arch}",
            culprit=library.path,
            subject=folder_of(library.path),
            seen=(Evidence(what=f"ELF machine {library.machine}", where=library.path),),
            why="ld.so passes over a library of another architecture without a word and takes the"
            " next one of that name, or says that there is none.",
            remedies=(restore(context, folder_of(library.path), library.path),),
        )


@rule("cudnn-dangling-link", "cudnn")
def dangling_link(context: Context) -> Iterator[Finding]:
    """A cuDNN name is a link to a file that is not there."""
    for library in cudnn_files(context):
        if library.status != "dangling":
            continue
        folder = folder_of(library.path)
        shim = ".so." in library.path and file_of(library.path).count(".") == 2
        on_path = folder in context.search_path or folder in context.used_folders()
        yield Finding(
            id="cudnn-dangling-link",
            severity="error" if on_path and shim else "warning",
            title=f"{library.path} points to {library.link}, which is not there",
            culprit=library.path,
            subject=folder,
            seen=(
                Evidence(what=f"-> {library.link} (missing)", where=library.path, how="readlink"),
            ),
            why="the loader skips the link and takes another copy or none: what this folder was"
            " meant to provide is not used.",
            remedies=(
                *((remedies.without_folders(context, folder),) if on_path else ()),
                restore(context, folder, library.path),
            ),
        )


@rule("cudnn-fake-symlink", "cudnn")
def fake_symlink(context: Context) -> Iterator[Finding]:
    """A cuDNN name leads to a library that is not cuDNN."""
    for library in cudnn_files(context):
        target = file_of(library.real or library.link or "")
        name = file_of(library.path)
        soname = library.soname or ""
        other_soname = bool(soname) and "cudnn" not in soname
        other_target = bool(library.link) and ".so" in target and "cudnn" not in target
        if not (other_soname or other_target):
            continue
        yield Finding(
            id="cudnn-fake-symlink",
            severity="error",
            title=f"{library.path} is not cuDNN but {soname or target}",
            culprit=library.path,
            subject=folder_of(library.path),
            seen=(
                Evidence(
                    what=f"-> {library.link}" if library.link else f"SONAME {soname}",
                    where=library.path,
                    how="readlink and ELF SONAME",
                ),
            ),
            why=f"whoever opens {name} gets a library without any cuDNN function.",
            remedies=(remedies.remove_file(context, library.path), _real_one(context, name)),
            avoid=("counting this file as an installed cuDNN",),
        )


def _real_one(context: Context, name: str) -> Remedy:
    major = name.rpartition(".so.")[2].split(".")[0]
    cuda = next((t.version for t in context.machine.toolkits or () if t.version), None)
    return remedies.install_cudnn(context, int(major) if major.isdecimal() else 9, cuda)
