"""Rules about space and write access where cuDNN is downloaded, unpacked and installed."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from cudnn_doctor.checks.context import Context
from cudnn_doctor.checks.model import Evidence, Finding, Remedy
from cudnn_doctor.checks.registry import Skip, rule
from cudnn_doctor.machine.model import DiskSpace

_FULL = 64 << 20
"""Bytes below which a file system counts as full: nothing of cuDNN fits."""
_TIGHT = 2 << 30
"""Bytes that downloading and unpacking one wheel takes (700 MB packed, 1.1 GB unpacked)."""


_DEFAULT_TMP = "/tmp"  # noqa: S108 - only named, the default of every tool


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count >> 20} MiB"


def _disks(context: Context) -> tuple[DiskSpace, ...]:
    disks = context.machine.system.disks
    if not any(disk.free is not None for disk in disks):
        raise Skip("free disk space is not known")
    return disks


@rule("tmp-full", "system")
def tmp_full(context: Context) -> Iterator[Finding]:
    """TMPDIR cannot hold an unpacked wheel, though another disk could."""
    disks = _disks(context)
    tmpdir = context.machine.system.tmpdir or _DEFAULT_TMP
    tmp = next((d for d in disks if d.path == tmpdir), None)
    if tmp is None or tmp.free is None or tmp.free >= _TIGHT:
        return
    roomy = [d for d in disks if d.path != tmpdir and (d.free or 0) >= _TIGHT]
    kind = f"{tmp.filesystem} " if tmp.filesystem else ""
    if not roomy:
        return
    target = roomy[0].path
    roomy_tmp = posixpath.join(target, "tmp")
    yield Finding(
        id="tmp-full",
        severity="warning",
        title=f"{tmpdir} has {_size(tmp.free)} free, too little to install cuDNN",
        culprit=tmpdir,
        seen=(
            Evidence(what=f"{kind}{tmpdir}: {_size(tmp.free)} free", where=tmpdir, how="statvfs"),
            Evidence(what=f"{target}: {_size(roomy[0].free or 0)} free", where=target),
        ),
        why="pip downloads and unpacks in TMPDIR; a cuDNN wheel takes about 2 GiB there.",
        remedies=(
            Remedy(
                title="let pip use a disk with room",
                commands=(f"mkdir -p {roomy_tmp}", f"export TMPDIR={roomy_tmp}"),
                changes="this shell only",
            ),
        ),
        avoid=("enlarging or emptying the target disk: that one has room",),
    )


@rule("disk-full", "system")
def disk_full(context: Context) -> Iterator[Finding]:
    """A file system that installs would write to has no room."""
    tmpdir = context.machine.system.tmpdir
    for disk in _disks(context):
        if disk.free is None or disk.free >= _FULL or disk.path == tmpdir or disk.read_only:
            continue
        yield Finding(
            id="disk-full",
            severity="warning",
            title=f"{disk.path} is full ({_size(disk.free)} free)",
            culprit=disk.path,
            seen=(Evidence(what=f"{_size(disk.free)} free", where=disk.path, how="statvfs"),),
            why="an installation that runs out of space leaves truncated libraries behind.",
            remedies=(Remedy(title="free some space", commands=("python3 -m pip cache purge",)),),
        )


@rule("read-only-target", "system")
def read_only_target(context: Context) -> Iterator[Finding]:
    """An active environment lies on a file system that cannot be written."""
    disks = context.machine.system.disks
    if not any(disk.read_only is not None for disk in disks):
        raise Skip("whether the disks can be written is not known")
    active = [e.prefix for e in context.machine.environments if e.active]
    for disk in disks:
        if disk.read_only and any(f"{p}/".startswith(f"{disk.path}/") for p in active):
            yield Finding(
                id="read-only-target",
                severity="info",
                title=f"{disk.path} is read-only; nothing can be installed there",
                culprit=disk.path,
                seen=(Evidence(what="mounted read-only", where=disk.path, how="statvfs"),),
                remedies=(
                    Remedy(
                        title="install into an environment of your own",
                        commands=("python3 -m venv ~/.venvs/gpu",),
                    ),
                ),
            )
