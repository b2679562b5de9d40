"""`Machine`: what was seen, where it was seen and, where a probe failed, why.

Every field has a default that means "not known", so that a partial snapshot (somebody's description
of a machine) is a Machine too. ``None`` is unknown; an empty tuple is "looked, and found none" for
``X | None`` fields and "none known" for the rest. Sizes are bytes, versions text, paths are as seen
from inside the probed root.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SCHEMA = 1


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of all facts: immutable, JSON-serialisable, defaults left out of the JSON."""


# -- GPU and driver


class MigInstance(Fact, frozen=True, kw_only=True):
    """One MIG GPU instance (``nvidia-smi -L`` lists the same)."""

    uuid: str = ""
    profile: str = ""
    memory_total: int | None = None


class Gpu(Fact, frozen=True, kw_only=True):
    """One NVIDIA GPU, as NVML tells it."""

    index: int = 0
    name: str = ""
    uuid: str = ""
    pci_bus_id: str = ""
    compute_capability: str | None = None
    """``"8.6"``."""
    memory_total: int | None = None
    memory_free: int | None = None
    mig_enabled: bool | None = None
    mig_instances: tuple[MigInstance, ...] = ()
    compute_mode: str | None = None
    """``default``, ``exclusive-process`` or ``prohibited``."""
    ecc_enabled: bool | None = None
    ecc_uncorrected: int | None = None
    retired_pages_pending: bool | None = None
    virtualization: str | None = None
    """``none``, ``passthrough``, ``vgpu``, ``host-vgpu``, ``host-vsga``."""
    fabric_state: str | None = None
    """NVSwitch fabric: ``completed``, ``in-progress``, ``not-started``, ``not-supported``,
    or ``failed``: completed with an error."""
    unreadable: tuple[str, ...] = ()
    """Fields that NVML refused, each with its error name."""


class PciDevice(Fact, frozen=True, kw_only=True):
    """A display or 3D controller or NVSwitch bridge of vendor 10de seen in sysfs."""

    address: str
    device_id: str = ""
    class_code: str = ""
    driver: str | None = None
    """The kernel driver bound to it: ``nvidia``, ``nouveau``, ``vfio-pci``, or None."""


class DeviceNode(Fact, frozen=True, kw_only=True):
    """A node such as ``/dev/nvidia0``, whether it is there and whether this user may open it."""

    path: str
    exists: bool = False
    readable: bool | None = None
    writable: bool | None = None
    mode: str = ""
    owner: str = ""
    error: str = ""
    """errno name when opening was refused although the mode allows it (cgroup, SELinux)."""


class Driver(Fact, frozen=True, kw_only=True):
    """The NVIDIA driver: kernel module and user-space libraries."""

    version: str | None = None
    """What programs meet: NVML's answer, else the loaded module's."""
    kernel_version: str | None = None
    """Of the loaded module (/sys/module/nvidia/version, /proc/driver/nvidia/version)."""
    kernel_flavour: str | None = None
    """``open`` or ``proprietary``."""
    library_version: str | None = None
    """Of libnvidia-ml, from its file name."""
    cuda: str | None = None
    """Highest CUDA version that the driver supports, ``"13.0"``."""
    nvml_library: str | None = None
    nvml_error: str | None = None
    """NVML error name, such as ``NVML_ERROR_LIB_RM_VERSION_MISMATCH``; None when NVML works."""
    uvm_loaded: bool | None = None
    module_on_disk: str | None = None
    """Version of the nvidia.ko that would be loaded at the next boot."""
    fabric_manager: str | None = None
    """``running``, ``stopped``, ``not-installed``; None where there is no NVSwitch."""
    fabric_manager_version: str | None = None
    jetpack: str | None = None
    """L4T release text on Tegra, such as ``R36.4.0``."""


# -- system


class DiskSpace(Fact, frozen=True, kw_only=True):
    path: str
    total: int | None = None
    free: int | None = None
    filesystem: str = ""
    read_only: bool | None = None


class System(Fact, frozen=True, kw_only=True):
    """The operating system around it all."""

    distro_id: str | None = None
    """os-release ID: ``ubuntu``, ``debian``, ``rhel``, ``fedora``, ``arch`` ..."""
    distro_like: tuple[str, ...] = ()
    distro_version: str | None = None
    distro_name: str = ""
    kernel: str | None = None
    arch: str | None = None
    """``x86_64``, ``aarch64`` ..."""
    libc: Literal["glibc", "musl"] | None = None
    libc_version: str | None = None
    container: str | None = None
    """``docker``, ``podman``, ``lxc``, ``kubernetes``, ``apptainer``, ...; None: not in one."""
    container_gpu: bool | None = None
    """Whether the container runtime was asked for a GPU (NVIDIA_VISIBLE_DEVICES, device nodes)."""
    wsl: bool | None = None
    docker_context: str | None = None
    selinux: Literal["enforcing", "permissive", "disabled"] | None = None
    user: str | None = None
    is_root: bool | None = None
    package_managers: tuple[str, ...] = ()
    disks: tuple[DiskSpace, ...] = ()
    """TMPDIR first, then the folders that installs would write to."""
    tmpdir: str | None = None


class Package(Fact, frozen=True, kw_only=True):
    """An installed distribution package that matters here."""

    name: str
    version: str
    manager: str = ""
    """``dpkg``, ``rpm``, ``pacman``, ``conda`` ..."""
    origin: str = ""
    """Vendor or repository, where the database tells."""
    held: bool = False
    held_by: str = ""
    """File of the lock, where the manager keeps locks in one that people may edit."""
    lock: str = ""
    """The lock as that file and the manager's commands have it."""


class Repository(Fact, frozen=True, kw_only=True):
    """A configured NVIDIA package repository."""

    manager: str
    url: str = ""
    name: str = ""
    file: str = ""
    distro: str = ""
    """NVIDIA's directory name, such as ``ubuntu2204``."""
    signed_by: str = ""
    enabled: bool = True
    priority: int | None = None
    """Of dnf and zypper: the lowest number wins, 99 where none is said; None: not told."""


# -- libraries


class Library(Fact, frozen=True, kw_only=True):
    """One shared-library file (or link) that cuDNN or its users could load."""

    path: str
    """As the loader would name it: folder and file name."""
    link: str | None = None
    """Text of the symbolic link, if it is one."""
    real: str | None = None
    """The file at the end of the links; None when they dangle."""
    size: int | None = None
    status: Literal["ok", "dangling", "truncated", "not-elf", "unreadable", "unknown"] = "unknown"
    machine: str | None = None
    """ELF machine in uname's spelling: ``x86_64``, ``aarch64``, ``ppc64le``, ``i386`` ..."""
    elf_class: int | None = None
    """32 or 64."""
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    version: str | None = None
    """Exact version, where the file name, its package or the library itself tells."""
    version_from: str = ""
    """``file`` (a symbol in it), ``wheel``, ``file name``, ``package``, ``header``, ``asked``."""
    digest: str | None = None
    """SHA-256 where ``--hashes`` asked for it."""
    glibc_needed: str | None = None
    """Newest GLIBC_x.y symbol version that it requires."""


class Owner(Fact, frozen=True, kw_only=True):
    """Who put a file there."""

    kind: Literal["dpkg", "rpm", "pacman", "apk", "wheel", "conda", "framework", "none"]
    name: str = ""
    version: str = ""


class CudnnCopy(Fact, frozen=True, kw_only=True):
    """One copy of cuDNN: the files of one folder that belong together."""

    folder: str
    major: int | None = None
    version: str | None = None
    """``9.10.2`` or ``9.10.2.21``; None when mixed or not known."""
    version_from: str = ""
    cuda: str | None = None
    """CUDA flavour, the major as text."""
    flavour: Literal["full", "jit"] = "full"
    kind: str = ""
    """Where it was found: ``wheel``, ``system``, ``toolkit``, ``conda``, ``bundled``,
    ``ld_library_path``, ``module``, ``spack``, ``nix``, ``easybuild``, ``prefix``."""
    shim: str | None = None
    """File name of libcudnn.so.N, None when it is missing."""
    files: tuple[str, ...] = ()
    """File names in the folder, links included, sorted."""
    file_versions: dict[str, str] = {}
    """Per library (``libcudnn_ops.so.9``) the version told by its real file name or contents."""
    owners: tuple[Owner, ...] = ()
    environment: str | None = None
    """Prefix of the Python environment it lives in."""
    static_archives: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    """Library names that a description says are not there; ``*``: the folder is empty."""
    private: bool = False
    """A renamed or partial copy inside a framework (hashed names), not usable by others."""


class Header(Fact, frozen=True, kw_only=True):
    """A ``cudnn_version.h`` (or ``cudnn.h`` of 7)."""

    path: str
    version: str | None = None


class Toolkit(Fact, frozen=True, kw_only=True):
    """A CUDA toolkit or a set of CUDA run-time libraries."""

    path: str
    version: str | None = None
    kind: str = ""
    """``toolkit``, ``wheels``, ``conda``, ``distro``."""
    nvcc: str | None = None
    active: bool = False
    """CUDA_HOME or PATH points to it."""


class CacheEntry(Fact, frozen=True, kw_only=True):
    """One relevant line of ld.so.cache."""

    soname: str
    path: str
    arch: str = ""


class LoaderConfig(Fact, frozen=True, kw_only=True):
    """What ld.so would consult besides the environment."""

    cache: tuple[CacheEntry, ...] | None = None
    """None: no cache could be read."""
    conf_folders: tuple[str, ...] = ()
    """Folders named by /etc/ld.so.conf and its includes, in order."""
    default_folders: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    """/etc/ld.so.preload."""


# -- Python


class RecordProblem(Fact, frozen=True, kw_only=True):
    """One file of a wheel's RECORD that is not on the disk as recorded."""

    path: str
    problem: Literal["missing", "size", "hash", "unreadable"]
    expected: str = ""
    found: str = ""


class Distribution(Fact, frozen=True, kw_only=True):
    """An installed Python distribution that matters here (metadata only, never imported)."""

    name: str
    """Normalised (PEP 503)."""
    version: str
    location: str = ""
    """The site-packages folder; the prefix for a conda package."""
    installer: str = ""
    """``pip``, ``uv`` ...; ``conda`` for what conda installed."""
    build: str = ""
    """Build string of a conda package, such as ``cuda12_0``."""
    requires: tuple[str, ...] = ()
    """Requires-Dist lines about nvidia-*, torch and the like; ``depends`` of a conda package."""
    record_checked: int | None = None
    """Number of RECORD entries compared with the disk; None: no RECORD."""
    record_problems: tuple[RecordProblem, ...] = ()
    files: tuple[str, ...] = ()
    """Recorded libraries below ``nvidia/``, ``libcudnn*`` files and cuDNN headers, relative to
    ``location``: for ownership."""


class Environment(Fact, frozen=True, kw_only=True):
    """A Python environment."""

    prefix: str
    python: str | None = None
    """``3.11.7``."""
    executable: str | None = None
    kind: str = ""
    """``venv``, ``conda``, ``pyenv``, ``uv``, ``pipx``, ``poetry``, ``system``, ``user``,
    ``prefix`` (an unpacked Python) or ``target`` (a bare folder of packages)."""
    active: bool = False
    site_packages: tuple[str, ...] = ()
    """In the order of sys.path; those of the base Python that it sees come last."""
    distributions: tuple[Distribution, ...] = ()
    """Its own, not those of its base Python."""
    externally_managed: bool | None = None


class Framework(Fact, frozen=True, kw_only=True):
    """A framework found in an environment."""

    name: str
    """Catalogue name: ``torch``, ``tensorflow``, ``jax``, ``onnxruntime``, ``ctranslate2`` ..."""
    distribution: str = ""
    version: str = ""
    environment: str = ""
    """Prefix of the environment."""
    location: str = ""
    """Its package folder, such as ``.../site-packages/torch``."""
    cuda: str | None = None
    """CUDA it was built for: ``12.8``, ``12``, or ``cpu``; None: not known."""
    cudnn_built: str | None = None
    """cuDNN it was compiled against, where its metadata or files tell."""
    pins: tuple[str, ...] = ()
    """Its requirement lines about cuDNN."""
    binaries: tuple[str, ...] = ()
    """Paths (entries of ``Machine.libraries``) of its objects that bring cuDNN in."""


class Process(Fact, frozen=True, kw_only=True):
    """A running process that has cuDNN mapped."""

    pid: int
    command: str = ""
    mapped: tuple[str, ...] = ()
    """Real paths of its mapped libcudnn* files."""


# -- the project around it


class Requirement(Fact, frozen=True, kw_only=True):
    """A line of a project's file that asks for cuDNN, CUDA, a framework or a base image."""

    name: str
    """Normalised distribution (PEP 503), or the image's name."""
    wanted: str = ""
    """Specifier, version or tag as written, without credentials."""
    file: str
    """Relative to the project's folder, or absolute."""
    line: int
    kind: Literal["requirement", "lock", "image"] = "requirement"


class Setting(Fact, frozen=True, kw_only=True):
    """A line that sets a variable which decides about libraries (``LD_LIBRARY_PATH``)."""

    variable: str
    value: str
    file: str
    """Relative to the project's folder, or absolute (``/etc/environment``, ``~/.bashrc``)."""
    line: int


class Project(Fact, frozen=True, kw_only=True):
    """Files that people edit and that decide which cuDNN a program gets."""

    folder: str = ""
    """Empty: none was looked at."""
    files: tuple[str, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    settings: tuple[Setting, ...] = ()


class ProbeFailure(Fact, frozen=True, kw_only=True):
    """A probe, or a part of one, that could not be done."""

    probe: str
    why: str


class Machine(Fact, frozen=True, kw_only=True):
    """Everything that was seen on one machine."""

    schema: int = SCHEMA
    tool: str = ""
    taken: str = ""
    """UTC, ISO 8601."""
    root: str = "/"
    partial: bool = False
    """A description by hand: what is not told is unknown, not absent."""
    system: System = System()
    gpus: tuple[Gpu, ...] | None = None
    pci: tuple[PciDevice, ...] | None = None
    device_nodes: tuple[DeviceNode, ...] | None = None
    driver: Driver = Driver()
    environ: dict[str, str] = {}
    """The environment variables that matter (LD_LIBRARY_PATH, CUDA_*, CUDNN_*, ...)."""
    loader: LoaderConfig = LoaderConfig()
    libraries: tuple[Library, ...] = ()
    copies: tuple[CudnnCopy, ...] | None = None
    headers: tuple[Header, ...] = ()
    toolkits: tuple[Toolkit, ...] | None = None
    environments: tuple[Environment, ...] = ()
    frameworks: tuple[Framework, ...] = ()
    packages: tuple[Package, ...] = ()
    repositories: tuple[Repository, ...] = ()
    preferred: tuple[Repository, ...] = ()
    """Those of others, by name alone, that dnf or zypper prefers to NVIDIA's by priority."""
    processes: tuple[Process, ...] | None = None
    project: Project = Project()
    notes: tuple[str, ...] = ()
    """Free text of a description that no field holds."""
    failures: tuple[ProbeFailure, ...] = ()
    durations: dict[str, float] = {}
    """Seconds that each probe took."""
