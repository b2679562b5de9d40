"""The cuBLAS and NVRTC wheels that cuDNN's wheel loads: which are wanted, and which exactly.

The matrix knows no hashes for them. Where uv or pip can ask the index at plan time, their versions,
hashes and sizes are its answer; a lock file keeps them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import msgspec
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from cudnn_doctor.errors import DoctorError, NothingChanged
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.install.wheels import environment as environments
from cudnn_doctor.install.wheels import fromindex
from cudnn_doctor.install.wheels.environment import Installer
from cudnn_doctor.install.wheels.pins import name_of, requirements_of
from cudnn_doctor.interpreter import apart
from cudnn_doctor.machine.model import Distribution, Environment, Machine
from cudnn_doctor.machine.redact import without_secrets

_FIRST_UNSUFFIXED = 13
"""From CUDA 13 on the companions' names carry no ``-cuNN``."""
LINE = re.compile(r"[\w.-]+==[\w.+!]+( --hash=sha256:[0-9a-f]{64})+")
_SECONDS = 60.0
"""How long uv may take to answer; pip may have to download the wheels themselves."""


# -- which


def names(request: InstallRequest) -> tuple[str, ...]:
    """The distributions of cuBLAS and NVRTC for the CUDA major."""
    suffix = f"-cu{request.cuda}" if int(request.cuda) < _FIRST_UNSUFFIXED else ""
    return (f"nvidia-cublas{suffix}", f"nvidia-cuda-nvrtc{suffix}")


def present(request: InstallRequest, environment: Environment | None) -> list[Distribution]:
    """Those of them that are installed, in whatever version."""
    there = environment.distributions if environment else ()
    return [d for d in there if d.name in names(request) and d.installer != "conda"]


def missing(request: InstallRequest, environment: Environment | None) -> list[str]:
    """Requirements for those that are not there in a fitting version, as the environment's
    frameworks ask for them; of pinned ones those that are not there exactly."""
    if request.companions:
        there = {f"{d.name}=={d.version}" for d in environment.distributions} if environment else ()
        return [line for line in request.companions if line.partition(" ")[0] not in there]
    have = {d.name: d for d in present(request, environment)}
    found = []
    for name in names(request):
        wanted = SpecifierSet("" if name.endswith(f"-cu{request.cuda}") else f"=={request.cuda}.*")
        if name in have and wanted.contains(have[name].version, prereleases=True):
            continue
        for pin in requirements_of(environment, name) if environment else ():
            wanted &= pin.requirement.specifier
        found.append(f"{name}{wanted}")
    return found


def not_pinned(request: InstallRequest, lines: list[str]) -> str:
    """What to say where requirements stay as they are."""
    why = request.unpinned or "they come as the index has them then"
    return f"{', '.join(lines)} not pinned: {why}"


# -- which exactly


def pin(request: InstallRequest, machine: Machine) -> InstallRequest:
    """The request with its companions pinned, those of the environment in their versions.

    Raises DoctorError (NOTHING_CHANGED) when the installer cannot resolve them or the index tells
    no hashes.
    """
    if request.fresh:
        return _pinned(request, None, _of_this_machine())
    environment = environments.choose(request.python, machine)
    return _pinned(request, environment, environments.installer_for(environment))


def pin_if_told(request: InstallRequest, machine: Machine) -> InstallRequest:
    """The same where the index answers; else the request says why they are not pinned.

    An environment that lacks none is not asked for; nor is its own pip, which would download the
    wheels to look into them.
    """
    if not request.fresh:
        environment = environments.choose(request.python, machine)
        installer = environments.installer_for(environment)
        if not (installer.is_uv and missing(request, environment)):
            return request
    try:
        return pin(request, machine)
    except DoctorError as error:
        said = error.what.partition("\n")[2] or error.what
        return msgspec.structs.replace(request, unpinned=without_secrets(said))


def _of_this_machine() -> Installer:
    """uv or a pip of this machine, to ask the index on behalf of an image."""
    command = fromindex.installer()
    if command is None:
        raise _failed("neither uv nor pip is here to ask the index", "")
    return Installer(command, sys.executable, fromindex.is_uv(command))


def _pinned(
    request: InstallRequest, environment: Environment | None, installer: Installer
) -> InstallRequest:
    lacking = missing(request, environment)
    kept = [d for d in present(request, environment) if d.name not in map(name_of, lacking)]
    wanted = [*lacking, *(f"{d.name}=={d.version}" for d in kept)]
    ask = _by_uv if installer.is_uv else _by_pip
    found = ask(installer, wanted, request.arch if request.fresh else "")
    for line in found:
        if not LINE.fullmatch(line):
            raise _failed(f"the index tells no SHA-256 of {line.split(maxsplit=1)[0]}", "")
    return msgspec.structs.replace(
        request,
        companions=tuple(sorted(found)),
        sizes={line.partition("==")[0]: size for line, size in found.items() if size},
    )


def _by_uv(installer: Installer, wanted: Sequence[str], arch: str) -> dict[str, int]:
    """Lines with hashes -> bytes of the wheel (0: not told)."""
    argv = [*installer.command, "compile", "--format", "pylock.toml", "--no-header", "-q"]
    argv.append("--only-binary=:all:")
    argv += ["--python", installer.python]
    argv += ["--python-platform", fromindex.uv_platform(arch)] if arch else []
    text = _answer([*argv, "-"], wanted, _SECONDS)
    found = {}
    for package in msgspec.toml.decode(text).get("packages", ()):
        wheels = package.get("wheels", [])
        hashes = [f"--hash=sha256:{w['hashes'].get('sha256', '')}" for w in wheels]
        line = " ".join([f"{package['name']}=={package['version']}", *hashes])
        found[line] = max((w.get("size", 0) for w in wheels), default=0)
    return found


def _by_pip(installer: Installer, wanted: Sequence[str], arch: str) -> dict[str, int]:
    argv = [*installer.command, "install", "--dry-run", "--ignore-installed", "-q"]
    if arch:
        argv += ["--target", os.path.join(tempfile.gettempdir(), "none")]
        argv += fromindex.pip_platform(arch)
    else:
        argv.append("--only-binary=:all:")
    text = _answer([*argv, "--report", "-", "-r", "/dev/stdin"], wanted)
    return dict(_reported(item) for item in msgspec.json.decode(text)["install"])


def _reported(item: dict[str, Any]) -> tuple[str, int]:
    """A line from pip's report, which tells no sizes."""
    told = item["metadata"]
    digest = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256", "")
    return f"{canonicalize_name(told['name'])}=={told['version']} --hash=sha256:{digest}", 0


def _answer(argv: Sequence[str], wanted: Sequence[str], seconds: float | None = None) -> str:
    try:
        done = subprocess.run(
            apart(argv),
            input="".join(f"{line}\n" for line in wanted),
            capture_output=True,
            env={**os.environ, "LC_ALL": "C"},
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _failed(f"{argv[0]} had no answer of the index after {seconds:.0f} s", "") from None
    if done.returncode:
        tail = "\n".join(done.stderr.strip().splitlines()[-12:])
        raise _failed(f"cannot resolve {', '.join(wanted)}:\n{tail}".strip(), argv[0])
    return done.stdout


def _failed(what: str, where: str) -> DoctorError:
    return NothingChanged(
        what,
        where=where,
        next_step="mend the index, proxy or certificates; or leave --lock out",
    )
