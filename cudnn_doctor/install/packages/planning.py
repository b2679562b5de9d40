"""Plans for distribution packages: NVIDIA's own, or the distribution's where there is no other.

What could go wrong is looked for before anything is changed: the machine's facts tell of held
packages, foreign repositories and other flavours; the package manager rehearses the installation
when the plan is made, where it knows the repository, and once more in the plan itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from cudnn_doctor.errors import NothingChanged
from cudnn_doctor.install.archives.unpack import free_space_for
from cudnn_doctor.install.packages.foresee import Foreseen, foresee
from cudnn_doctor.install.packages.manager import (
    ENVIRON,
    Choice,
    Manager,
    RepositoryFile,
    Target,
)
from cudnn_doctor.install.packages.managers import manager_named
from cudnn_doctor.install.plan import AnyStep, FetchKey, GuardSystem, MakeFolder, Plan, Prove, Run
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.machine.model import Machine
from cudnn_doctor.matrix import query
from cudnn_doctor.matrix.model import DistroPackage, Matrix

_MANAGERS = ("apt", "dnf", "zypper", "pacman")
_LAYOUT = "/compute/cuda/repos/"


def plan_package(request: InstallRequest, machine: Machine, matrix: Matrix) -> Plan:
    """A plan that installs cuDNN by the distribution's package manager.

    Raises DoctorError (NOTHING_CHANGED) when there is no package for the request, or it is foreseen
    that the manager will refuse it or would remove what is not cuDNN's.
    """
    if request.fresh:
        machine = Machine(system=machine.system)
    choice = _choose(request, machine, matrix)
    known = _configured(choice, machine, request)
    foreseen = Foreseen()
    if not request.fresh:
        foreseen = foresee(choice, request, machine, configured=known is not None)
    return Plan(
        action="install",
        method="package",
        version=request.version,
        cuda=request.cuda,
        target="system",
        steps=(*_steps(choice, request, machine, matrix, foreseen),),
        reasons=(*request.reasons, *_reasons(choice, request, known)),
        warnings=foreseen.warnings,
        space_needed=_space(request, matrix, foreseen.going),
        packages={target.name: target.version for target in choice.targets},
    )


def _steps(
    choice: Choice, request: InstallRequest, machine: Machine, matrix: Matrix, foreseen: Foreseen
) -> Iterator[AnyStep]:
    manager, targets = choice.manager, choice.targets
    install = manager.install(targets, foreseen.drop)
    if not request.fresh:
        yield _guard(manager)
    yield from manager.before(targets, request.version)
    yield from _repository_steps(choice, request, _configured(choice, machine, request))
    if not request.fresh:
        if manager.rehearses:
            yield _run("rehearse the installation", manager.rehearse(targets, foreseen.drop))
        yield _guard(manager, install, foreseen.going)
    yield _run(f"install {', '.join(f'{t.name} {t.version}'.strip() for t in targets)}", install)
    yield from manager.after(_not_held(targets, machine), hold=request.hold)
    if not request.fresh:
        yield _proof(choice, request, matrix)


def _not_held(targets: list[Target], machine: Machine) -> list[Target]:
    """What a hold would be new for, so that its undo takes no hold of others away."""
    held = {package.name for package in machine.packages if package.held}
    return [t for t in targets if "cudnn" in t.name and t.name not in held]


def _space(request: InstallRequest, matrix: Matrix, going: tuple[str, ...]) -> dict[str, int]:
    """Roughly: a package is as large as the wheel of that release, and is unpacked beside it. What
    it replaces stays on the disk, and an undo packs that once more."""
    known = query.wheels_for(matrix, request.version, request.cuda, flavour=request.flavour)
    size = max((wheel.size or 0 for wheel in known), default=0)
    unpacked = free_space_for(size)
    return {"/usr": 2 * unpacked if going else unpacked, "/var/cache": size} if size else {}


def _guard(
    manager: Manager, finish: tuple[str, ...] = (), keep: tuple[str, ...] = ()
) -> GuardSystem:
    what = "which files of cuDNN and CUDA are there" if finish else "which packages are installed"
    also = f", and keep {', '.join(keep)} for an undo" if keep else ""
    return GuardSystem(
        title=f"remember {what}{also}",
        manager=manager.name,  # type: ignore[arg-type]
        finish=finish,
        keep=keep,
    )


def _run(title: str, argv: tuple[str, ...]) -> Run:
    return Run(title=title, argv=argv, environ={**ENVIRON}, needs_root=True)


def _proof(choice: Choice, request: InstallRequest, matrix: Matrix) -> Prove:
    flavour = request.flavour
    return Prove(
        title="check the files and load them",
        listing=choice.manager.files_of(choice.targets[0].name),
        version=request.version,
        sonames=query.sublibraries(matrix, request.release, request.cuda, flavour) or (),
    )


# -- what to install


def _choose(request: InstallRequest, machine: Machine, matrix: Matrix) -> Choice:
    system = machine.system
    name = _manager_name(machine)
    arch = request.platform.removeprefix("linux-")
    distro, version = system.distro_id or "", system.distro_version or ""
    repository = query.repository_for(matrix, distro, version, arch)
    for row in query.distro_packages_for(matrix, name, request.version, request.cuda):
        own = row.repo == "distro" and {distro, f"{distro} {version}"} & set(row.distros)
        if row.repo == "nvidia" and repository is None:
            continue
        if row.repo == "distro" and not own:
            continue
        targets = _targets(row, request)
        if targets:
            used = repository if row.repo == "nvidia" else None
            targets += _companions(request, machine, targets)
            return Choice(manager_named(name), row, targets, used, arch)
    place = f"{distro or 'this distribution'} {version}".strip()
    raise NothingChanged(
        f"there is no {name} package of cuDNN {request.version} ({request.flavour}) for CUDA "
        f"{request.cuda} on {place}, {arch}",
        next_step="use --method tarball, which needs no repository",
    )


def _manager_name(machine: Machine) -> str:
    """The manager of this distribution; its own where several programs are installed."""
    families = {machine.system.distro_id, *machine.system.distro_like}
    by_family = {
        "apt": {"debian", "ubuntu", "linuxmint", "pop"},
        "dnf": {"fedora", "rhel", "centos", "rocky", "almalinux", "ol", "amzn", "azurelinux"},
        "zypper": {"suse", "sles", "sled", "opensuse", "opensuse-leap", "opensuse-tumbleweed"},
        "pacman": {"arch", "archlinux"},
    }
    for name, ids in by_family.items():
        if families & ids:
            return name
    present = [m for m in machine.system.package_managers if m in _MANAGERS]
    if not present:
        raise NothingChanged(
            "no package manager that this tool knows (apt, dnf, zypper, pacman)",
            next_step="use --method tarball or wheel",
        )
    return present[0]


def _targets(row: DistroPackage, request: InstallRequest) -> list[Target]:
    if request.flavour == "jit":
        names = row.jit
    else:
        names = (*row.runtime, *(row.dev if request.dev else ()))
        names += row.static if request.static else ()
    version = row.version_format.format(
        build=request.version, version=request.release, cuda=request.cuda, minor=f"{request.cuda}.*"
    )
    return [Target(n, request.packages.get(n, version)) for n in dict.fromkeys(names)]


def _companions(request: InstallRequest, machine: Machine, asked: list[Target]) -> list[Target]:
    """What a lock says came along; what is here already stays as it is."""
    here = {package.name for package in machine.packages} | {target.name for target in asked}
    return [Target(*pair) for pair in request.packages.items() if pair[0] not in here]


# -- the repository


def _configured(choice: Choice, machine: Machine, request: InstallRequest) -> str | None:
    """The file that configures the right repository already; ``""`` where none is needed."""
    if choice.repository is None:
        return ""
    part = f"{_LAYOUT}{choice.repository.distro}/{choice.arch}"
    for known in machine.repositories:
        if known.enabled and known.manager == choice.manager.name and part in f"{known.url}/":
            mirrored = request.mirrors and not known.url.startswith(_base(choice, request))
            if not mirrored:
                return known.file
    return None


def _base(choice: Choice, request: InstallRequest) -> str:
    """URL of the server (or folder) that has NVIDIA's layout."""
    if request.mirrors:
        mirror = request.mirrors[0].rstrip("/")
        return mirror if "://" in mirror else Path(mirror).resolve().as_uri()
    return (choice.repository.key_url or "").partition(_LAYOUT)[0] if choice.repository else ""


def _repository_steps(choice: Choice, request: InstallRequest, known: str | None) -> list[AnyStep]:
    manager, repository = choice.manager, choice.repository
    if repository is None:
        return []
    refresh = "fetch the repository's index"
    if known is not None:
        return [_run(refresh, manager.refresh(known))]
    if not repository.key_url or not repository.key_fingerprint:
        raise NothingChanged(
            f"the signing key of NVIDIA's repository for {repository.distro} is not known, and "
            "without it nothing from there can be trusted",
            next_step="set that repository up by NVIDIA's guide, then run this again; or use "
            "--method tarball",
        )
    url = f"{_base(choice, request)}{_LAYOUT}{repository.distro}/{choice.arch}/"
    key = manager.key_path
    file = RepositoryFile(manager.repository_path, url, key)
    return [
        *manager.prepare(url, fresh=request.fresh),
        *(
            MakeFolder(title=f"create {folder}", path=folder, needs_root=True)
            for folder in dict.fromkeys(map(os.path.dirname, (key, file.path)))
        ),
        FetchKey(
            title=f"fetch NVIDIA's signing key and check it: {repository.key_fingerprint}",
            urls=(url + os.path.basename(repository.key_url),),
            fingerprint=repository.key_fingerprint,
            path=key,
            needs_root=True,
        ),
        *manager.repository(file),
        _run(refresh, manager.refresh(file.path)),
    ]


def _reasons(choice: Choice, request: InstallRequest, known: str | None) -> Iterator[str]:
    if choice.repository is None:
        yield f"the distribution's own package, by {choice.manager.name}"
    elif known is not None:
        yield f"from NVIDIA's repository, which is configured in {known}"
    else:
        where = f"{_base(choice, request)}{_LAYOUT}{choice.repository.distro}/{choice.arch}/"
        yield f"from NVIDIA's repository, which is added: {where}"
    if choice.row.note:
        yield f"note: {choice.row.note}"
