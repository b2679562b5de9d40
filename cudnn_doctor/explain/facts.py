"""Facts: the machine and what the log itself tells of it, in the terms that the rules ask for."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable
from functools import cached_property

from cudnn_doctor.explain.model import Observation
from cudnn_doctor.machine.model import CudnnCopy, Framework, Machine
from cudnn_doctor.matrix.load import load
from cudnn_doctor.matrix.query import gpu_by_name
from cudnn_doctor.versions import CudnnVersion

_GEFORCE = re.compile(r"\b(?:GeForce|GTX|RTX\s*\d{4}|TITAN|MX\d{3})\b", re.I)
_DEFAULT_FOLDERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu")
_DISTRO_FAMILY = {
    "apt": ("ubuntu", "debian", "linuxmint", "pop", "kali"),
    "dnf": ("fedora", "rhel", "centos", "rocky", "almalinux", "ol", "amzn"),
    "zypper": ("opensuse-leap", "opensuse-tumbleweed", "sles"),
    "pacman": ("arch", "manjaro"),
    "apk": ("alpine",),
}


def numbers(version: str | None) -> tuple[int, ...]:
    """``"2.9.1+cu128"`` as ``(2, 9, 1)``; empty when unknown."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", version or "")
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def release(text: str) -> CudnnVersion | None:
    """A cuDNN version from ``9.10.2``, ``9, 10, 2``, ``91002`` or ``7605``."""
    plain = text.replace(", ", ".").strip(" .")
    try:
        if plain.isdecimal() and len(plain) >= 4:
            return CudnnVersion.decode(int(plain))
        return CudnnVersion.parse(plain)
    except ValueError:
        return None


class Facts:
    """Answers questions about the machine; None or empty where it is not known."""

    def __init__(self, machine: Machine | None, seen: Iterable[Observation]) -> None:
        self.machine = machine or Machine(partial=True)
        self.given = machine is not None
        self.whole = machine is not None and not machine.partial
        self.told: dict[str, list[Observation]] = {}
        for observation in seen:
            if observation.signature.role == "fact":
                self.told.setdefault(observation.signature.event, []).append(observation)

    # -- text

    @cached_property
    def prose(self) -> str:
        """All free text of a description."""
        return "\n".join(self.machine.notes)

    def says(self, pattern: str) -> bool:
        """Whether the description's free text matches."""
        return re.search(pattern, self.prose, re.I) is not None

    @cached_property
    def products(self) -> set[str]:
        """Products that the log or the machine mentions, lower case."""
        names = {o.get("name").lower().strip("/") for o in self.told.get("product", ())}
        names |= {o.get("package").lower() for o in self.told.get("traceback-file", ())}
        return names | {framework.name for framework in self.machine.frameworks}

    def uses(self, *names: str) -> bool:
        """Whether one of the products is in play."""
        return any(name in product for name in names for product in self.products)

    # -- frameworks and distributions

    def framework(self, name: str) -> Framework | None:
        """The framework by its catalogue name: what the log tells of it goes first."""
        installed = next((f for f in self.machine.frameworks if f.name == name), None)
        for told in self.told.get("framework-version", ()):
            said = told.get("name").lower().replace("pytorch", "torch")
            said = {"jaxlib": "jax"}.get(said, said.split("-")[0])
            if said == name and (installed is None or not installed.version):
                version = told.get("version")
                tag = re.search(r"\+cu(\d{2})(\d)", version)
                cuda = f"{tag[1]}.{tag[2]}" if tag else None
                return Framework(name=name, distribution=name, version=version, cuda=cuda)
        return installed

    @cached_property
    def distributions(self) -> dict[str, str]:
        """Installed nvidia-* distributions: name -> version."""
        found = {
            told.get("name").lower().replace("_", "-"): told.get("version")
            for told in self.told.get("dist-version", ())
        }
        for environment in self.machine.environments:
            for distribution in environment.distributions:
                found[distribution.name] = distribution.version or found.get(distribution.name, "")
        return found

    @cached_property
    def cudnn_wheels(self) -> dict[str, str]:
        """The cuDNN wheels among the distributions."""
        return {n: v for n, v in self.distributions.items() if n.startswith("nvidia-cudnn-cu")}

    # -- cuDNN copies

    @cached_property
    def copies(self) -> tuple[CudnnCopy, ...]:
        """The known copies; empty when none is known or none is there."""
        return self.machine.copies or ()

    @property
    def copies_known(self) -> bool:
        """Whether the list of copies is complete enough to say that one is absent."""
        return self.machine.copies is not None

    def copies_of(self, major: int | None) -> list[CudnnCopy]:
        """Copies of one major (None: of any)."""
        return [c for c in self.copies if major is None or c.major == major]

    @cached_property
    def ld_path(self) -> tuple[str, ...] | None:
        """Folders of LD_LIBRARY_PATH; None: not known."""
        value = self.machine.environ.get("LD_LIBRARY_PATH")
        for told in self.told.get("env-ld-library-path", ()):
            value = value or told.get("value")
        if value is None:
            return () if self.whole else None
        return tuple(folder.rstrip("/") for folder in value.split(":") if folder)

    def searched(self, folder: str) -> bool | None:  # noqa: PLR0911
        """Whether the plain loader looks into a folder; None: not known."""
        if not folder:
            return None
        folder = folder.rstrip("/")
        if folder in (self.ld_path or ()):
            return True
        cache = self.machine.loader.cache
        if cache and any(os.path.dirname(entry.path) == folder for entry in cache):
            return True
        if folder in _DEFAULT_FOLDERS or folder.endswith("-linux-gnu"):
            return True
        told = self.told.get("cache-entry", ())
        if any(os.path.dirname(o.get("path")) == folder for o in told):
            return True
        private = "site-packages" in folder or "torch/lib" in folder or "conda" in folder.lower()
        if private or cache is not None or self.ld_path is not None:
            return False
        return None

    # -- GPU and driver

    @cached_property
    def gpu_name(self) -> str:
        names = [gpu.name for gpu in self.machine.gpus or () if gpu.name]
        names += [o.get("gpu") for o in self.told.get("capability", ()) if o.get("gpu")]
        names += [o.get("gpu") for o in self.told.get("gpu-name", ())]
        return names[0] if names else ""

    @property
    def geforce(self) -> bool:
        return _GEFORCE.search(self.gpu_name) is not None

    @cached_property
    def capability(self) -> tuple[int, ...]:
        """Lowest compute capability among the GPUs, ``(8, 6)``; empty when unknown."""
        told = [numbers(gpu.compute_capability) for gpu in self.machine.gpus or ()]
        for observation in self.told.get("capability", ()):
            for field in ("cc", "cc2", "cc3"):
                told.append(numbers(observation.get(field)))
            if sm := observation.get("sm"):
                told.append((int(sm[:-1]), int(sm[-1])))
        known = [cc for cc in told if cc]
        return min(known) if known else _capability_of(self.gpu_name)

    @property
    def driver(self) -> str:
        """Driver version, empty when unknown."""
        driver = self.machine.driver
        told = [o.get("driver") for o in self.told.get("driver-versions", ()) if o.get("driver")]
        return driver.version or driver.kernel_version or (told[0] if told else "")

    @property
    def driver_branch(self) -> str:
        return self.driver.split(".")[0]

    @cached_property
    def cuda_majors(self) -> set[int]:
        """CUDA majors of the toolkits that are there."""
        return {
            numbers(toolkit.version)[0]
            for toolkit in self.machine.toolkits or ()
            if numbers(toolkit.version)
        }

    # -- system

    @property
    def in_container(self) -> bool:
        return self.machine.system.container is not None or self.says(
            r"\bcontainer\b|\bdocker\b|\bcompose\b|\bpod\b|\bkubernetes\b"
        )

    @property
    def jetson(self) -> bool:
        return bool(self.machine.driver.jetpack) or self.uses("jetson", "jetpack", "tegra")

    @property
    def wsl(self) -> bool:
        return bool(self.machine.system.wsl) or self.uses("wsl")

    @cached_property
    def manager(self) -> str:
        """System package manager: ``apt``, ``dnf``, ``zypper``, ``pacman``, empty: unknown."""
        if self.machine.system.package_managers:
            known = {"dpkg": "apt", "apt": "apt", "rpm": "dnf"}
            first = self.machine.system.package_managers[0]
            return known.get(first, first)
        names = (self.machine.system.distro_id or "", *self.machine.system.distro_like)
        for manager, distros in _DISTRO_FAMILY.items():
            if any(name in distros for name in names):
                return manager
        return ""


def _capability_of(name: str) -> tuple[int, ...]:
    """Compute capability by product name, from the matrix; empty when unknown."""
    found = gpu_by_name(load(), name) if name else None
    return numbers(found.cc) if found else ()
