"""Which Python environment a wheel goes into, and the program that puts it there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cudnn_doctor.errors import DoctorError, ExitCode, NothingChanged
from cudnn_doctor.install.plan import Run
from cudnn_doctor.interpreter import apart
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Environment, Machine
from cudnn_doctor.machine.places import prefix_of

_ISOLATED = {"pipx_metadata.json": "pipx", "uv-receipt.toml": "uv tool"}
"""Files by which pipx and ``uv tool`` know their environments."""
_PIP_ENVIRON = {"PIP_USER": "0", "PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
_UV_ENVIRON = {"UV_NO_PROGRESS": "1"}


class Installer(NamedTuple):
    """uv, or the pip of one environment."""

    command: tuple[str, ...]
    """The words before ``install`` and ``uninstall``."""
    python: str
    is_uv: bool

    def install(
        self,
        requirements: Iterable[str],
        title: str,
        *,
        deps: bool = False,
        again: bool = False,
        cache: bool = True,
    ) -> Run:
        """A step that installs wheels, never what would have to be built, for that runs programs
        that it brings; lines that carry hashes make it check all hashes. ``again``: also what is
        there already in that version. ``cache``: what is fetched is kept."""
        lines = tuple(requirements)
        argv = [*self.command, "install", *self._where(), "--only-binary=:all:"]
        argv += [] if deps else ["--no-deps"]
        argv += ["--require-hashes"] if any("--hash=" in line for line in lines) else []
        if again:
            argv.append("--reinstall" if self.is_uv else "--force-reinstall")
        argv += [] if cache else ["--no-cache-dir"]
        text = "".join(f"{line}\n" for line in lines)
        return Run(title=title, argv=(*argv, "-r", "/dev/stdin"), stdin=text, environ=self._how())

    def uninstall(self, names: Iterable[str], title: str) -> Run:
        """A step that uninstalls."""
        yes = () if self.is_uv else ("-y",)
        argv = (*self.command, "uninstall", *self._where(), *yes, *names)
        return Run(title=title, argv=argv, environ=self._how())

    def _how(self) -> dict[str, str]:
        return {**(_UV_ENVIRON if self.is_uv else _PIP_ENVIRON)}

    def _where(self) -> list[str]:
        return ["--python", self.python] if self.is_uv else []


def choose(python: str | None, machine: Machine) -> Environment:
    """The environment asked for, or the active one, if wheels may be put into it.

    Raises DoctorError: USAGE when there is none, NOTHING_CHANGED with the reason when it is the
    tool's own, externally managed (PEP 668), without an interpreter or not writable.
    """
    environment = _find(python, machine)
    if python is None and (owner := _isolated(environment.prefix)):
        raise NothingChanged(
            f"the active Python environment is the one that {owner} made for cudnn-doctor itself: "
            "nothing else would ever see a cuDNN in it",
            where=environment.prefix,
            next_step="name the environment of your framework with --python DIR, or activate "
            "it first",
        )
    if environment.executable is None:
        raise NothingChanged(
            f"this is a folder of packages ({environment.kind}) without an interpreter of its own",
            where=environment.prefix,
            next_step="name an environment with --python DIR",
        )
    if environment.externally_managed and not _break_system_packages():
        raise NothingChanged(
            "this Python belongs to the operating system, which forbids others to install "
            "packages into it (PEP 668, EXTERNALLY-MANAGED)",
            where=environment.prefix,
            next_step="make a virtual environment: `python3 -m venv .venv`, then "
            "`cudnn-doctor install --method wheel --python .venv`",
        )
    folder = site_of(environment)
    if not os.access(folder, os.W_OK):
        raise NothingChanged(
            "you may not write into this environment's packages",
            where=folder,
            next_step="make a virtual environment of your own: `python3 -m venv .venv`, then "
            "`cudnn-doctor install --method wheel --python .venv`",
        )
    return environment


def _find(python: str | None, machine: Machine) -> Environment:
    if python is None:
        active = next((e for e in machine.environments if e.active), None)
        if active is None:
            raise DoctorError(
                "no Python environment is active",
                next_step="activate one, or name it with --python DIR",
                exit_code=ExitCode.USAGE,
            )
        return active
    prefix = prefix_of(Host("/"), python)
    real = os.path.realpath(prefix) if prefix else None
    for environment in machine.environments:
        if os.path.realpath(environment.prefix) == real:
            return environment
    raise DoctorError(
        "there is no Python environment",
        where=python,
        next_step=f"make it: `python3 -m venv {python}`, or name another with --python DIR",
        exit_code=ExitCode.USAGE,
    )


def site_of(environment: Environment) -> str:
    """The folder into which its installer puts pure packages, as NVIDIA's wheels are."""
    folders = [*environment.site_packages]
    folders += [d.location for d in environment.distributions if d.name.startswith("nvidia-")]
    if not folders:
        raise NothingChanged(
            "this environment has no folder for packages",
            where=environment.prefix,
            next_step="make a new one: `python3 -m venv .venv`",
        )
    return folders[0]


def _isolated(prefix: str) -> str | None:
    """Who made the tool's own environment, if ``prefix`` is that and nobody else works in it."""
    if os.path.realpath(prefix) != os.path.realpath(sys.prefix):
        return None
    for name, owner in _ISOLATED.items():
        if (Path(prefix) / name).exists():
            return owner
    parts = Path(os.path.realpath(prefix)).parts
    return "uvx" if any(part.startswith("archive-v") for part in parts) else None


def _break_system_packages() -> bool:
    """Whether the user has asked pip and uv for it, in the environment."""
    names = ("PIP_BREAK_SYSTEM_PACKAGES", "UV_BREAK_SYSTEM_PACKAGES")
    return any(os.environ.get(n, "").lower() in ("1", "true", "yes", "on") for n in names)


def installer_for(environment: Environment) -> Installer:
    """uv when it is there, else the environment's own pip.

    Raises DoctorError (NOTHING_CHANGED) where there is neither.
    """
    python = environment.executable or f"{environment.prefix}/bin/python"
    uv = "uv" if shutil.which("uv") else shutil.which("uv", path=f"{environment.prefix}/bin")
    if uv:
        return Installer((uv, "pip"), python, True)
    command = (python, "-m", "pip")
    try:
        done = subprocess.run(
            (*apart(command), "--version"),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except OSError as error:
        raise NothingChanged(
            f"the interpreter of this environment cannot be run: {error.strerror}",
            where=python,
            next_step="mend or remake the environment, or name another with --python DIR",
        ) from error
    if done.returncode:
        raise NothingChanged(
            "neither uv nor this environment's pip is here to install a wheel",
            where=environment.prefix,
            next_step=f"run `{python} -m ensurepip`, or install uv",
        )
    return Installer(command, python, False)
