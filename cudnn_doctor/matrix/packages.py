"""What to install for an answer: packages, archive and exact commands, per method."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

import msgspec

from cudnn_doctor.matrix.candidates import Candidate
from cudnn_doctor.matrix.model import Archive, DistroPackage, Matrix, Wheel
from cudnn_doctor.matrix.query import archive_url

_INSTALL = {
    "apt": "sudo apt-get install",
    "dnf": "sudo dnf install",
    "zypper": "sudo zypper install",
    "pacman": "sudo pacman -S",
}
_PINNED = {"apt": "{name}={version}", "dnf": "{name}-{version}", "zypper": "{name}={version}"}
_FIRST_UNSUFFIXED = 13
"""From CUDA 13 on the companion wheels have no ``-cuNN`` suffix."""


class ArchiveAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The archive of an answer, as the redist tree names it."""

    path: str
    url: str
    sha256: str | None
    size: int | None
    platform: str


class Ways(msgspec.Struct, frozen=True, kw_only=True):
    """All ways to install one answer."""

    packages: dict[str, list[str]] = {}
    """Per way (``wheel``, ``apt``, ``dnf`` ...) what to ask for, cuDNN first."""
    archive: ArchiveAnswer | None = None
    commands: dict[str, list[str]] = {}
    """Per way, shell lines."""


def ways(candidates: Iterable[Candidate], matrix: Matrix) -> Ways:
    """Collect the artefacts of one answer: the best of each kind."""
    packages: dict[str, list[str]] = {}
    commands: dict[str, list[str]] = {}
    archive = None
    for candidate in candidates:
        artefact = candidate.artefact
        if isinstance(artefact, Wheel) and "wheel" not in packages:
            packages["wheel"] = _wheel_names(artefact, candidate.cuda)
            names = " ".join(shlex.quote(name) for name in packages["wheel"])
            commands["wheel"] = [f"python3 -m pip install {names}"]
        elif isinstance(artefact, Archive) and archive is None:
            archive = _archive(artefact, matrix)
            packages["tarball"] = [archive.path.rsplit("/", 1)[-1]]
            commands["tarball"] = _archive_commands(archive)
        elif isinstance(artefact, DistroPackage) and artefact.manager not in packages:
            packages[artefact.manager] = _distro_names(artefact, candidate)
            names = " ".join(packages[artefact.manager])
            commands[artefact.manager] = [f"{_INSTALL[artefact.manager]} {names}"]
    return Ways(packages=packages, archive=archive, commands=commands)


def _wheel_names(wheel: Wheel, cuda: str) -> list[str]:
    """The wheel and the libraries that it loads at run time: cuBLAS and NVRTC of its CUDA."""
    suffix, pin = (f"-cu{cuda}", "") if int(cuda) < _FIRST_UNSUFFIXED else ("", f"=={cuda}.*")
    companions = (f"nvidia-cublas{suffix}", f"nvidia-cuda-nvrtc{suffix}")
    return [f"{wheel.package}=={wheel.version}", *(name + pin for name in companions)]


def _archive(archive: Archive, matrix: Matrix) -> ArchiveAnswer:
    return ArchiveAnswer(
        path=archive.path,
        url=archive_url(matrix, archive),
        sha256=archive.sha256,
        size=archive.size,
        platform=archive.platform,
    )


def _archive_commands(archive: ArchiveAnswer) -> list[str]:
    name = archive.path.rsplit("/", 1)[-1]
    lines = [f"curl -fLO {archive.url}"]
    if archive.sha256:
        lines.append(f"echo '{archive.sha256}  {name}' | sha256sum -c")
    return [*lines, f"tar -xf {name}"]


def _distro_names(package: DistroPackage, candidate: Candidate) -> list[str]:
    jit = candidate.flavour == "jit"
    names = list(package.jit) if jit else list(dict.fromkeys((*package.runtime, *package.dev)))
    template = _PINNED.get(package.manager)
    if not template or not package.version_format:
        return names
    version = package.version_format.format(
        build=candidate.build,
        version=candidate.release.version,
        cuda=candidate.variant.cuda,
        minor=candidate.variant.cudart or f"{candidate.variant.cuda}*",
    )
    return [template.format(name=name, version=version) for name in names]
