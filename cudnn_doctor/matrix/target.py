"""`Target`: what a cuDNN is wanted for, told by a machine, by command-line options, or by both."""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as PipRequirement
from packaging.utils import canonicalize_name

from cudnn_doctor.machine.model import Environment, Framework, Machine
from cudnn_doctor.matrix.model import Matrix
from cudnn_doctor.matrix.query import gpu_by_cc
from cudnn_doctor.matrix.specs import version_key

Method = Literal["wheel", "tarball", "package"]
Flavour = Literal["full", "jit"]

_PLATFORMS = {
    "x86_64": "linux-x86_64",
    "amd64": "linux-x86_64",
    "aarch64": "linux-sbsa",
    "arm64": "linux-sbsa",
    "sbsa": "linux-sbsa",
    "jetson": "linux-aarch64",
    "tegra": "linux-aarch64",
    "ppc64le": "linux-ppc64le",
}
_FIRST_SBSA_L4T = 38
"""From L4T R38 (JetPack 7, CUDA 13) Jetson uses the server (SBSA) builds."""
_FIRST_SBSA_CC = (11, 0)
_LOCAL = re.compile(r"(?P<rest>.*[^+])\+(?P<local>[a-z0-9.]+)", re.IGNORECASE)


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of the parts of a target."""


class TargetGpu(Fact, frozen=True, kw_only=True):
    """One GPU that the cuDNN must run on."""

    cc: str | None = None
    """Compute capability, ``"8.6"``; None when it could not be read."""
    name: str = ""

    @property
    def label(self) -> str:
        """``RTX 3090 (8.6)``, ``GPU 8.6`` or the bare name."""
        if self.cc is None:
            return self.name or "GPU of unknown kind"
        return f"{self.name} ({self.cc})" if self.name else f"GPU {self.cc}"


class FrameworkRequest(Fact, frozen=True, kw_only=True):
    """A framework that must work with the cuDNN: ``torch==2.6.*+cu124``, ``jax[cuda12]``."""

    text: str
    name: str
    """Normalised (PEP 503)."""
    specifier: str = ""
    extras: tuple[str, ...] = ()
    local: str = ""
    """Local version, which names the CUDA build: ``cu124``, ``cpu``."""
    pins: tuple[str, ...] = ()
    """Requirement lines about cuDNN from installed metadata: they outrank the matrix."""
    installed: bool = False

    @classmethod
    def parse(cls, text: str) -> FrameworkRequest:
        """Read a pip requirement, with a CUDA tag even after a wildcard; raises ValueError."""
        bare = text.split(";", maxsplit=1)[0].strip()
        tagged = _LOCAL.fullmatch(bare)
        rest, local = (tagged["rest"], tagged["local"].lower()) if tagged else (bare, "")
        try:
            parsed = PipRequirement(rest)
        except InvalidRequirement as error:
            raise ValueError(f"not a pip requirement: {text!r}") from error
        return cls(
            text=text.strip(),
            name=canonicalize_name(parsed.name),
            specifier=str(parsed.specifier),
            extras=tuple(sorted(parsed.extras)),
            local=local,
        )

    @classmethod
    def installed_one(cls, framework: Framework) -> FrameworkRequest | None:
        """The request that an installed framework makes; None when its version is not known."""
        if not framework.version:
            return None
        text = f"{framework.distribution or framework.name}=={framework.version}"
        try:
            request = cls.parse(text)
        except ValueError:
            return None
        return msgspec.structs.replace(request, pins=framework.pins, installed=True)


class Target(Fact, frozen=True, kw_only=True):
    """Everything that the answer depends on. None means "not known": it then rules nothing out."""

    gpus: tuple[TargetGpu, ...] = ()
    driver: str | None = None
    """``"535.54.03"``, or a bare branch ``"535"``."""
    driver_cuda: str | None = None
    """Highest CUDA that the driver supports, used where its version is not known."""
    compat_driver: str | None = None
    """Version of the cuda-compat libcuda that the loader would open before the driver's own."""
    cuda: str | None = None
    """Wanted CUDA, ``"12"`` or ``"12.4"``."""
    toolkit: str | None = None
    """CUDA toolkit that is active (CUDA_HOME, PATH). It decides nothing; a note tells of it."""
    platform: str = "linux-x86_64"
    """NVIDIA's name: ``linux-x86_64``, ``linux-sbsa``, ``linux-aarch64`` (Jetson)."""
    glibc: str | None = None
    libc: Literal["glibc", "musl"] = "glibc"
    distro: str | None = None
    """os-release ID and VERSION_ID, ``"ubuntu 24.04"``."""
    frameworks: tuple[FrameworkRequest, ...] = ()
    method: Method | None = None
    version: str | None = None
    """PEP 440 specifier on the cuDNN release."""
    flavour: Flavour = "full"
    python: str | None = None

    @classmethod
    def from_machine(cls, machine: Machine) -> Target:
        """The target that a probed (or described) machine is.

        Frameworks count when they live in the active environment: other environments keep their
        own cuDNN.
        """
        system, driver = machine.system, machine.driver
        active = next((env for env in machine.environments if env.active), None)
        distro = f"{system.distro_id or ''} {system.distro_version or ''}".strip()
        target = cls(
            gpus=tuple(
                TargetGpu(cc=_numbers(gpu.compute_capability), name=gpu.name)
                for gpu in machine.gpus or ()
            ),
            driver=_numbers(driver.version) or _numbers(driver.kernel_version),
            driver_cuda=_numbers(driver.cuda),
            compat_driver=_compat_driver(machine),
            toolkit=next((_numbers(t.version) for t in machine.toolkits or () if t.active), None),
            platform=_machine_platform(system.arch, driver.jetpack),
            glibc=_numbers(system.libc_version) if system.libc != "musl" else None,
            libc=system.libc or "glibc",
            distro=distro or None,
        )
        return target.in_environment(machine, active) if active else target

    def in_environment(self, machine: Machine, environment: Environment) -> Target:
        """The same target with the Python of one environment, and the frameworks that are in it."""
        installed = (
            FrameworkRequest.installed_one(framework)
            for framework in machine.frameworks
            if framework.environment == environment.prefix
        )
        frameworks = tuple(request for request in installed if request is not None)
        return msgspec.structs.replace(self, frameworks=frameworks, python=environment.python)


def _numbers(text: str | None) -> str | None:
    """The dotted number that a text begins with; None for anything else (not known)."""
    match = re.match(r"\d+(\.\d+)*", text or "")
    return match[0] if match else None


def _compat_driver(machine: Machine) -> str | None:
    """Version of a cuda-compat libcuda on LD_LIBRARY_PATH or first in ld.so.cache."""
    known = {library.path: library for library in machine.libraries}
    folders = machine.environ.get("LD_LIBRARY_PATH", "").split(":")
    paths = [f"{folder.rstrip('/')}/libcuda.so.1" for folder in folders if folder]
    paths += [e.path for e in machine.loader.cache or () if e.soname == "libcuda.so.1"]
    first = next((known[path] for path in paths if path in known), None)
    if first is None or "/compat/" not in first.path:
        return None
    named = re.search(r"libcuda\.so\.(\d{3}(?:\.\d+)+)$", first.real or "")
    return first.version or (named[1] if named else None)


def platform_of(arch: str) -> str:
    """NVIDIA's platform name for ``uname -m`` text, ``sbsa`` or ``jetson``; raises ValueError."""
    name = arch.lower().removeprefix("linux-")
    if name not in _PLATFORMS:
        raise ValueError(f"unknown architecture {arch!r}; known: {', '.join(sorted(_PLATFORMS))}")
    return _PLATFORMS[name]


def platform_for_gpus(gpus: tuple[TargetGpu, ...], matrix: Matrix) -> str | None:
    """The platform that Jetson GPUs imply, None for all others."""
    for gpu in gpus:
        model = gpu_by_cc(matrix, gpu.cc or "")
        if model and model.tegra:
            return "linux-sbsa" if version_key(gpu.cc) >= _FIRST_SBSA_CC else "linux-aarch64"
    return None


def _machine_platform(arch: str | None, jetpack: str | None) -> str:
    l4t = re.match(r"R?(\d+)", jetpack or "")
    if l4t and int(l4t[1]) < _FIRST_SBSA_L4T:
        return "linux-aarch64"
    if arch is None:
        return "linux-x86_64"
    return _PLATFORMS.get(arch, f"linux-{arch}")
