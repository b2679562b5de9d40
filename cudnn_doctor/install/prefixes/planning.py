"""Plans for a prefix: a version's files, put in place beside others and made current."""

from __future__ import annotations

import os
from pathlib import Path

from cudnn_doctor.errors import NothingChanged
from cudnn_doctor.install import folders
from cudnn_doctor.install.plan import AnyStep, MakeFolder, MoveTree, Plan, Prove
from cudnn_doctor.install.prefixes import layout, ours
from cudnn_doctor.install.prefixes.source import Source, source_for
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.matrix import query
from cudnn_doctor.matrix.model import Matrix


def plan_tarball(request: InstallRequest, matrix: Matrix) -> Plan:
    """A plan that puts one version into a prefix and makes it current.

    Raises DoctorError (NOTHING_CHANGED) when the matrix knows no archive for the request, or the
    place is taken by something else.
    """
    wanted = request.prefix
    prefix = layout.default(as_root=request.fresh) if wanted is None else layout.checked(wanted)
    name = layout.folder_name(request.release, request.cuda, request.flavour)
    final, staging = f"{prefix}/{name}", f"{prefix}/.{name}.new"
    steps: list[AnyStep] = []
    reasons, space = list(request.reasons), {}
    if request.fresh or not os.path.lexists(final):
        source = source_for(request, matrix, prefix, staging)
        steps += put_in_place(source, request, matrix, final)
        reasons.append(source.why)
        space = source.space_needed
    else:
        _check_present(final, request)
        reasons.append(f"{final} is there already and whole")
    told = prefix == layout.SYSTEM if request.fresh else layout.loader_is_told(prefix)
    steps += layout.make_current(prefix, name, ldconfig=told)
    if not request.fresh:
        steps = layout.only_changes(steps)
    plan = Plan(
        action="install",
        method="tarball",
        version=request.version,
        cuda=request.cuda,
        target=prefix,
        steps=tuple(steps),
        reasons=tuple(reasons),
        warnings=layout.warnings(prefix),
        space_needed=space,
    )
    return plan if request.fresh else ours.settled(plan)


def _check_present(final: str, request: InstallRequest) -> None:
    """Raise unless the version's folder is this tool's own and whole."""
    from cudnn_doctor.install import manifest

    damage = manifest.damage(Path(final))
    if damage is None:
        what, advice = "something else than this tool's files is there", "remove it"
    elif damage:
        what = f"that version is there, but damaged: {damage[0]}"
        advice = "mend it with `cudnn-doctor repair`"
    elif request.static and not list(Path(final).glob("lib/*.a")):
        what = "that version is there without static libraries"
        advice = f"remove it first with `cudnn-doctor uninstall {Path(final).name}`"
    else:
        return
    raise NothingChanged(
        what,
        where=final,
        next_step=f"{advice}, or give another --prefix",
    )


def put_in_place(
    source: Source, request: InstallRequest, matrix: Matrix, final: str
) -> list[AnyStep]:
    """Fill the staging folder, verify it, and give it its name."""
    prefix, staging = os.path.dirname(final), source.step.staging
    variant = query.variant(matrix, request.release, request.cuda)
    sonames = query.sublibraries(matrix, request.release, request.cuda, request.flavour)
    return [
        MakeFolder(title=f"create {prefix}", path=prefix, needs_root=not _may_write(prefix)),
        source.step,
        MakeFolder(title="create the folder for pkg-config", path=f"{staging}/lib/pkgconfig"),
        layout.pkgconfig(staging, request.release),
        Prove(
            title="check the files and load them",
            folder=f"{staging}/lib",
            version=request.version,
            sonames=sonames or () if variant else (),
        ),
        MoveTree(title=f"put it in place: {final}", source=staging, target=final),
    ]


def _may_write(path: str) -> bool:
    return os.access(folders.nearest(path), os.W_OK)
