"""Types of ``compat_matrix.yaml``. ``None`` is "not known" everywhere: absence is never evidence.

Provenance: ``sources`` names every source once, with how its values were got (documented, measured,
inferred). A record's ``source`` is the default for its fields; ``sources`` beside it maps a field
name to another source id.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SCHEMA = 1
How = Literal["documented", "measured", "inferred"]


class Row(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Base of all records of the file: an unknown field is an error."""


class Sourced(Row, frozen=True, kw_only=True):
    source: str = ""
    """Id in ``Matrix.sources``: where the record's values come from."""
    sources: dict[str, str] = {}
    """Field name -> source id, for fields that come from elsewhere."""
    note: str = ""


class Source(Row, frozen=True, kw_only=True):
    how: How
    title: str
    where: str = ""
    read: str = ""
    """Date, ISO 8601."""


class Variant(Sourced, frozen=True, kw_only=True):
    """One CUDA flavour of a release (``cuda12``)."""

    cuda: str
    """CUDA major as text (``"12"``), or ``"10.2"`` where builds were per minor (up to 8.4.1)."""
    toolkits: tuple[str, ...] | None = None
    """CUDA toolkits documented to work, ``"12.4"``."""
    driver: str | None = None
    """Lowest Linux driver under minor-version compatibility, ``"525.60.13"``."""
    blackwell_driver: str | None = None
    """Lowest driver for Blackwell GPUs where it differs."""
    cc_min: str | None = None
    cc_max: str | None = None
    """Newest compute capability with native code or documented support."""
    cc: tuple[str, ...] | None = None
    """Compute capabilities with full native code (SASS) in the libraries that need it."""
    cc_partial: tuple[str, ...] = ()
    """Those for which only some libraries or a few kernels have native code."""
    ptx: tuple[str, ...] | None = None
    """Compute capabilities for which PTX is carried (a newer GPU may JIT it)."""
    cudart: str | None = None
    """CUDA run time it was built with, ``"12.9"``."""
    glibc: str | None = None
    libraries: tuple[str, ...] | None = None
    """SONAMEs shipped, where they differ from the release's."""
    shim_search: Literal["runpath", "rpath"] | None = None
    """Tag by which libcudnn.so.N finds its sublibraries."""
    needs_driver: tuple[str, ...] = ()
    """SONAMEs that name libcuda.so.1 in DT_NEEDED: they cannot be opened without a driver."""


class Archive(Row, frozen=True, kw_only=True):
    """One archive of the redist tree. Provenance: ``Matrix.archive_source`` unless told."""

    platform: str
    """``linux-x86_64``, ``linux-sbsa``, ``linux-aarch64`` (Jetson), ``linux-ppc64le``."""
    cuda: str
    """CUDA as the file name spells it, ``"12"`` or ``"11.4"``."""
    path: str
    """Below ``Matrix.redist_base`` (or the legacy base)."""
    flavour: Literal["full", "jit"] = "full"
    version: str = ""
    """Full build version where it differs from the release's build."""
    size: int | None = None
    sha256: str | None = None
    md5: str | None = None
    legacy: bool = False
    """``path`` is below ``Matrix.legacy_base``. The layout goes by the suffix: ``cuda/lib64`` in a
    .tgz, ``<name>-archive/lib`` in a .tar.xz."""
    confirmed: int = 0
    """How many independent sources give this sha256."""


class Wheel(Row, frozen=True, kw_only=True):
    """One wheel on the package index."""

    package: str
    version: str
    file: str
    arch: str
    glibc: str | None = None
    """From its manylinux tag."""
    size: int | None = None
    sha256: str | None = None
    requires: tuple[str, ...] = ()
    yanked: str = ""
    """Reason, empty when it is not yanked."""


class Release(Sourced, frozen=True, kw_only=True):
    version: str
    """``"9.10.2"``."""
    build: str | None = None
    """``"9.10.2.21"``."""
    date: str | None = None
    """Day of release, ISO 8601."""
    status: Literal["preview", "release", "withdrawn"] = "release"
    libraries: tuple[str, ...] | None = None
    """SONAMEs of the full flavour, shim first."""
    jit_libraries: tuple[str, ...] | None = None
    """SONAMEs of the JIT flavour, where there is one."""
    variants: tuple[Variant, ...] = ()
    archives: tuple[Archive, ...] = ()
    wheels: tuple[Wheel, ...] = ()


class Issue(Sourced, frozen=True, kw_only=True):
    """A known fault of some releases."""

    id: str
    affects: str
    """PEP 440 specifier on the cuDNN release, such as ``">=9.8,<9.15"``."""
    title: str
    kind: Literal["wrong-results", "regression", "performance", "crash", "incomplete", "other"]
    avoid: bool = False
    """The resolver never chooses such a release unasked."""
    cc: tuple[str, ...] | None = None
    """Compute capabilities concerned; None: all, or not known."""
    cuda: str | None = None
    packages: tuple[str, ...] = ()
    fixed_in: str | None = None
    workaround: str = ""
    diagnosis: str = ""
    """Id of the diagnosis that reports it."""


class GpuModel(Sourced, frozen=True, kw_only=True):
    """One compute capability and the products that have it."""

    cc: str
    arch: str
    names: tuple[str, ...] = ()
    min_cuda: str | None = None
    """First CUDA toolkit that can target it."""
    max_cuda: str | None = None
    """Last CUDA toolkit that can target it."""
    last_driver_branch: str | None = None
    tegra: bool = False


class DriverBranch(Sourced, frozen=True, kw_only=True):
    branch: str
    """``"535"``."""
    cuda: str | None = None
    """Highest CUDA that ``nvidia-smi`` shows with it."""
    lts: bool = False
    first: str | None = None
    """First driver version of the branch that is known."""


class CudaFloor(Sourced, frozen=True, kw_only=True):
    """Lowest driver for a CUDA major under minor-version compatibility (or an exact minor)."""

    cuda: str
    driver: str


class ToolkitDriver(Sourced, frozen=True, kw_only=True):
    """Driver that a CUDA toolkit release was packaged with."""

    cuda: str
    driver: str | None = None
    cuda_update: str = ""


class FrameworkNeed(Sourced, frozen=True, kw_only=True):
    """What one range of versions of one distribution of a framework needs."""

    framework: str
    distribution: str
    versions: str
    """PEP 440 specifier on the distribution's version."""
    channel: str = "pypi"
    cuda_built: str | None = None
    cuda_major: int | None = None
    cudnn_major: int | None = None
    cudnn_install: str | None = None
    """What it asks pip for, PEP 440 on nvidia-cudnn-cuNN."""
    cudnn_install_kind: str = "unknown"
    cudnn_runtime: str | None = None
    """Versions accepted at run time, PEP 440."""
    cudnn_built: str | None = None
    cudnn_soname: str | None = None
    cudnn_package: str | None = None
    """Wheel that it asks pip for, ``"nvidia-cudnn-cu12"``."""
    cublas: str | None = None
    """What it asks pip for beside cuDNN: cuBLAS requirement."""
    loader: str = "unknown"
    """Id in ``Matrix.loaders``."""
    foreign: str = "unknown"
    """Id in ``Matrix.foreign_effects``: what a foreign copy on LD_LIBRARY_PATH does."""
    cc: tuple[str, ...] | None = None
    """Compute capabilities the build carries, ``"9.0"``, ``"9.0+PTX"``."""
    driver: str | None = None
    how: How = "inferred"
    python: str | None = None
    archs: tuple[str, ...] = ()
    known_bad: str = ""
    """Why this release should not be used."""


class DistroPackage(Sourced, frozen=True, kw_only=True):
    """A distribution package of cuDNN: names per manager, major and CUDA."""

    manager: Literal["apt", "dnf", "zypper", "pacman"]
    repo: Literal["nvidia", "distro"]
    cudnn: str
    """PEP 440 specifier on the cuDNN release, such as ``">=9,<10"``."""
    cuda: str | None = None
    runtime: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    jit: tuple[str, ...] = ()
    """Package of the JIT flavour, which excludes the full one."""
    version_format: str = ""
    """Such as ``"{build}-1"`` or ``"{build}-1+cuda{minor}"``."""
    distros: tuple[str, ...] = ()
    """NVIDIA directory names or distribution ids it exists for; empty: all."""


class NvidiaRepository(Sourced, frozen=True, kw_only=True):
    distro: str
    """Directory name, ``"ubuntu2404"``."""
    manager: Literal["apt", "dnf", "zypper"]
    ids: tuple[str, ...] = ()
    """os-release ``ID VERSION_ID`` patterns that it serves, ``"ubuntu 24.04"``, ``"rocky 9"``."""
    archs: tuple[str, ...] = ()
    key_url: str | None = None
    key_fingerprint: str | None = None
    keyring: str | None = None
    keyring_sha256: str | None = None


class Matrix(Row, frozen=True, kw_only=True):
    """The whole file."""

    schema: int
    updated: str
    sources: dict[str, Source]
    redist_base: str = ""
    """URL of the redist tree, with a final slash."""
    legacy_base: str = ""
    archive_source: str = ""
    wheel_source: str = ""
    releases: tuple[Release, ...] = ()
    """Oldest first."""
    issues: tuple[Issue, ...] = ()
    gpus: tuple[GpuModel, ...] = ()
    driver_branches: tuple[DriverBranch, ...] = ()
    cuda_floors: tuple[CudaFloor, ...] = ()
    toolkit_drivers: tuple[ToolkitDriver, ...] = ()
    frameworks: tuple[FrameworkNeed, ...] = ()
    loaders: dict[str, str] = {}
    """Loader id -> how the framework brings cuDNN in."""
    foreign_effects: dict[str, str] = {}
    distro_packages: tuple[DistroPackage, ...] = ()
    repositories: tuple[NvidiaRepository, ...] = ()
