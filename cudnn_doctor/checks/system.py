"""Rules about the operating system: C library and its version."""

from __future__ import annotations

from collections.abc import Iterator

from cudnn_doctor.checks.context import Context, numbers
from cudnn_doctor.checks.model import Evidence, Finding, Remedy
from cudnn_doctor.checks.registry import Skip, rule


@rule("musl-libc", "system")
def musl_libc(context: Context) -> Iterator[Finding]:
    """Neither the driver's libraries nor cuDNN exist for musl."""
    system = context.machine.system
    if system.libc is None:
        raise Skip("the C library is not known")
    if system.libc != "musl":
        return
    wanted = bool(context.machine.frameworks or context.machine.copies or context.machine.gpus)
    yield Finding(
        id="musl-libc",
        severity="error" if wanted else "warning",
        title=f"{system.distro_name or 'this system'} uses musl; NVIDIA's libraries need glibc",
        culprit="musl",
        seen=(Evidence(what=f"C library: musl {system.libc_version or ''}".rstrip()),),
        why="cuDNN, CUDA and the driver's libraries are linked against glibc symbols that musl"
        " does not have; they cannot be loaded here.",
        remedies=(
            Remedy(title="use a glibc image or distribution (debian, ubuntu, rocky, fedora)"),
        ),
        avoid=("gcompat and similar shims let the file open and fail later",),
    )


@rule("glibc-too-old", "system")
def glibc_too_old(context: Context) -> Iterator[Finding]:
    """A cuDNN library requires symbols of a newer glibc than this system's."""
    system = context.machine.system
    have = numbers(system.libc_version)
    if system.libc != "glibc" or not have:
        raise Skip("the version of glibc is not known")
    for copy in context.machine.copies or ():
        needs = {
            library.glibc_needed: library.path
            for library in context.machine.libraries
            if library.glibc_needed and library.path.startswith(f"{copy.folder}/")
        }
        variant = context.variant(copy.version, copy.cuda)
        if not needs and variant and variant.glibc:
            needs = {variant.glibc: copy.folder}
        newest = max(needs, key=numbers, default=None)
        if newest is None or numbers(newest) <= have:
            continue
        yield Finding(
            id="glibc-too-old",
            severity="error",
            title=f"cuDNN {copy.version or ''} needs glibc {newest}, this system has"
            f" {system.libc_version}",
            culprit=f"glibc {system.libc_version}",
            subject=copy.folder,
            seen=(
                Evidence(
                    what=f"needs GLIBC_{newest}", where=needs[newest], how="ELF version needs"
                ),
                Evidence(what=f"glibc {system.libc_version}", how="the C library"),
            ),
            why="ld.so refuses a library whose GLIBC symbol versions are not there.",
            remedies=(
                Remedy(title="use a newer distribution, or a container image of one"),
                Remedy(
                    title="take the newest cuDNN that this glibc can load",
                    commands=(f"cudnn-doctor resolve --glibc {system.libc_version}",),
                ),
            ),
            avoid=("replacing the system's libc.so.6 by hand breaks every program",),
        )
