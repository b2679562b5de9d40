"""Wheels for a machine where nothing is installed yet: an image that is built elsewhere.

The Python of most base images belongs to the distribution (PEP 668), and many have none: so the
wheel goes into a virtual environment, which is made where it is missing. Whoever has a Python in
the image for it names that.
"""

from __future__ import annotations

import posixpath
import shlex

import msgspec

from cudnn_doctor.install.plan import Plan, Run
from cudnn_doctor.install.request import InstallRequest
from cudnn_doctor.install.wheels import companions
from cudnn_doctor.install.wheels.environment import Installer

VENV = "/opt/venv"
"""The environment in an image, where none is named."""
_OLD_PIP = "pip>=20.3"
"""The first that knows wheels for a glibc by its version (PEP 600), as NVIDIA's are."""


def plan_image(request: InstallRequest, wheel: str, title: str) -> Plan:
    """The plan for the requirement line ``wheel``."""
    target = (request.python or VENV).rstrip("/")
    venv = _is_folder(target)
    python = f"{target}/bin/python" if venv else target
    installer = Installer((python, "-m", "pip"), python, False)
    lines = companions.missing(request, None)
    shown = ", ".join(line.partition(" ")[0] for line in lines)
    deps = not request.companions
    steps = [
        installer.install([wheel], f"install {title}", cache=False),
        installer.install(lines, f"install {shown}", deps=deps, cache=False),
    ]
    if venv:
        steps = [_make_venv(target), *(msgspec.structs.replace(s, needs_root=True) for s in steps)]
    return Plan(
        action="install",
        method="wheel",
        version=request.version,
        cuda=request.cuda,
        target=target,
        steps=tuple(steps),
        reasons=request.reasons,
        warnings=(companions.not_pinned(request, lines),) if not request.companions else (),
    )


def venv_of(plan: Plan) -> str | None:
    """The virtual environment that a wheel plan for an image fills, None for an interpreter."""
    return plan.target if plan.method == "wheel" and _is_folder(plan.target) else None


def _is_folder(python: str) -> bool:
    """Whether ``--python`` names an environment, not an interpreter in it."""
    return not posixpath.basename(python).startswith(("python", "pypy"))


def _make_venv(folder: str) -> Run:
    """Debian and Ubuntu have the module ``ensurepip`` in a package of its own."""
    place = shlex.quote(folder)
    script = f"""\
if ! [ -x {place}/bin/python ]; then
  if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    if command -v apt-get >/dev/null; then
      apt-get update -qq
      DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends python3-venv
      rm -rf /var/lib/apt/lists/*
    elif command -v dnf >/dev/null; then dnf install -y -q python3 && dnf clean all
    elif command -v microdnf >/dev/null; then microdnf install -y python3 && microdnf clean all
    elif command -v zypper >/dev/null; then zypper -n install python3 && zypper -n clean
    elif command -v pacman >/dev/null; then pacman -Sy --noconfirm --needed python
    fi
  fi
  python3 -m venv {place}
  {place}/bin/python -m pip install -q --no-cache-dir '{_OLD_PIP}'
fi"""
    title = f"make the virtual environment {folder} if it is missing"
    return Run(title=title, argv=("sh", "-c", script), needs_root=True)
