"""What the user asked to install."""

from __future__ import annotations

from typing import Literal

import msgspec

from cudnn_doctor.install.plan import Method


class InstallRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resolved wish: which cuDNN, how and where to."""

    method: Method
    version: str
    """Full build, ``9.10.2.21``."""
    cuda: str
    """CUDA major."""
    flavour: Literal["full", "jit"] = "full"
    platform: str = "linux-x86_64"
    reasons: tuple[str, ...] = ()
    fresh: bool = False
    """The plan is for another machine where nothing is installed yet (an image), run as root."""

    # tarball
    prefix: str | None = None
    source: Literal["auto", "archive", "wheel"] = "auto"
    mirrors: tuple[str, ...] = ()
    archive: str | None = None
    static: bool = False

    # wheel
    python: str | None = None
    """Interpreter or prefix of the environment; None: the active one."""
    break_pins: bool = False
    companions: tuple[str, ...] = ()
    """Exact cuBLAS and NVRTC with hashes (lines of a requirements file), from a lock or the index;
    empty: as the index will have them."""
    sizes: dict[str, int] = {}
    """Bytes of the companions' wheels, by distribution, where the index told them."""
    unpinned: str = ""
    """Why the index could not be asked for them."""

    # package
    hold: bool = False
    dev: bool = True
    packages: dict[str, str] = {}
    """Exact versions by name, of a lock."""
    sudo: bool = False

    @property
    def arch(self) -> str:
        """The machine as wheels call it: ``x86_64``, ``aarch64``; empty where there are none."""
        return {"linux-x86_64": "x86_64", "linux-sbsa": "aarch64"}.get(self.platform, "")

    @property
    def release(self) -> str:
        """``9.10.2``."""
        return ".".join(self.version.split(".")[:3])
