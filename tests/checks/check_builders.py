"""Machines built by hand for the tests of the rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from cudnn_doctor.checks.context import Options
from cudnn_doctor.checks.model import Finding, Report
from cudnn_doctor.checks.run import run_checks
from cudnn_doctor.machine import opens
from cudnn_doctor.machine.model import (
    CacheEntry,
    CudnnCopy,
    DeviceNode,
    Distribution,
    Driver,
    Environment,
    Framework,
    Gpu,
    Library,
    LoaderConfig,
    Machine,
    Owner,
    PciDevice,
    System,
)
from cudnn_doctor.machine.names import soname
from cudnn_doctor.matrix.load import load
from cudnn_doctor.versions import CudnnVersion

PREFIX = "/venv"
SITE = f"{PREFIX}/lib/python3.12/site-packages"
WHEEL = f"{SITE}/nvidia/cudnn/lib"
SYSTEM = "/usr/lib/x86_64-linux-gnu"
DRIVER_FILE = f"{SYSTEM}/libcuda.so.1"
MATRIX = load()


def cudnn_library(folder: str, part: str, version: str, cuda: str = "12", **more: Any) -> Library:
    """One library of a release as NVIDIA builds it."""
    release = CudnnVersion.parse(version).release
    name = soname(part, release[0])
    tags = opens.tags(part, release, cuda)
    fields: dict[str, Any] = {
        "path": f"{folder}/{name}",
        "real": f"{folder}/{name}",
        "size": 1000,
        "status": "ok",
        "machine": "x86_64",
        "elf_class": 64,
        "soname": name,
        "needed": opens.needed(part, release),
        "rpath": tags.rpath,
        "runpath": tags.runpath,
        "version": version,
        "version_from": "wheel",
    }
    return Library(**{**fields, **more})


def cudnn_libraries(folder: str, version: str, cuda: str = "12") -> tuple[Library, ...]:
    """All libraries of a release's full flavour."""
    parts = ("", *opens.shipped(CudnnVersion.parse(version).release))
    return tuple(cudnn_library(folder, part, version, cuda) for part in parts)


def copy_of(libraries: Iterable[Library], version: str, cuda: str = "12", **more: Any) -> CudnnCopy:
    """The copy that a folder's libraries make up."""
    libraries = tuple(libraries)
    names = tuple(sorted(library.path.rpartition("/")[2] for library in libraries))
    major = CudnnVersion.parse(version).major
    return CudnnCopy(
        **{
            "folder": libraries[0].path.rpartition("/")[0],
            "major": major,
            "version": version,
            "version_from": "wheel",
            "cuda": cuda,
            "shim": f"libcudnn.so.{major}",
            "files": names,
            "file_versions": {
                library.path.rpartition("/")[2]: library.version or "" for library in libraries
            },
            **more,
        }
    )


def plain_library(path: str, version: str | None = None) -> Library:
    """A CUDA library, or any other."""
    name = path.rpartition("/")[2]
    return Library(
        path=path,
        real=path,
        status="ok",
        machine="x86_64",
        elf_class=64,
        soname=name,
        version=version,
    )


def torch_object() -> Library:
    """torch's object that names cuDNN in DT_NEEDED."""
    up = "$ORIGIN/../../nvidia"
    return msgspec.structs.replace(
        plain_library(f"{SITE}/torch/lib/libtorch_cuda.so"),
        needed=("libcudnn.so.9",),
        rpath=f"{up}/cudnn/lib:{up}/cublas/lib:{up}/cuda_nvrtc/lib:$ORIGIN",
    )


CUDA12 = (
    plain_library(f"{SITE}/nvidia/cublas/lib/libcublas.so.12", "12.8.4.1"),
    plain_library(f"{SITE}/nvidia/cublas/lib/libcublasLt.so.12", "12.8.4.1"),
    plain_library(f"{SITE}/nvidia/cuda_nvrtc/lib/libnvrtc.so.12", "12.8.93"),
    plain_library(f"{SITE}/nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.8", "12.8.93"),
)
DRIVER_LIBRARIES = (plain_library(DRIVER_FILE), plain_library("/lib/x86_64-linux-gnu/libz.so.1"))
PIN = "nvidia-cudnn-cu12==9.10.2.21"


def environment(*distributions: Distribution, **more: Any) -> Environment:
    """The test environment with torch and its wheels, or with the given distributions."""
    usual = (
        Distribution(name="torch", version="2.8.0", location=SITE, requires=(PIN,)),
        Distribution(name="nvidia-cudnn-cu12", version="9.10.2.21", location=SITE),
    )
    return Environment(
        **{
            "prefix": PREFIX,
            "python": "3.12.3",
            "executable": f"{PREFIX}/bin/python",
            "kind": "venv",
            "active": True,
            "site_packages": (SITE,),
            "distributions": distributions or usual,
            **more,
        }
    )


def healthy(version: str = "9.10.2", **more: Any) -> Machine:
    """An H200 with torch and cuDNN from wheels, everything in order."""
    libraries = cudnn_libraries(WHEEL, version)
    wheel = copy_of(
        libraries,
        version,
        kind="wheel",
        environment=PREFIX,
        owners=(Owner(kind="wheel", name="nvidia-cudnn-cu12", version=version),),
    )
    fields: dict[str, Any] = {
        "tool": "test",
        "system": System(
            distro_id="ubuntu",
            distro_version="22.04",
            distro_name="Ubuntu 22.04.5 LTS",
            kernel="5.15.0",
            arch="x86_64",
            libc="glibc",
            libc_version="2.35",
            package_managers=("apt",),
            user="ada",
        ),
        "gpus": (
            Gpu(
                name="NVIDIA H200",
                uuid="GPU-1",
                compute_capability="9.0",
                memory_total=143 << 30,
                memory_free=142 << 30,
            ),
        ),
        "pci": (PciDevice(address="0000:01:00.0", class_code="0x030200", driver="nvidia"),),
        "device_nodes": tuple(
            DeviceNode(path=path, exists=True, readable=True, writable=True, mode="crw-rw-rw-")
            for path in ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0")
        ),
        "driver": Driver(
            version="580.95.05",
            kernel_version="580.95.05",
            library_version="580.95.05",
            cuda="13.0",
            uvm_loaded=True,
        ),
        "loader": LoaderConfig(
            cache=(
                CacheEntry(soname="libcuda.so.1", path=DRIVER_FILE),
                CacheEntry(soname="libz.so.1", path="/lib/x86_64-linux-gnu/libz.so.1"),
            ),
            default_folders=(SYSTEM, "/lib/x86_64-linux-gnu", "/usr/lib", "/lib"),
        ),
        "libraries": (*libraries, *CUDA12, *DRIVER_LIBRARIES, torch_object()),
        "copies": (wheel,),
        "environments": (environment(),),
        "frameworks": (
            Framework(
                name="torch",
                distribution="torch",
                version="2.8.0",
                environment=PREFIX,
                location=f"{SITE}/torch",
                cuda="12.8",
                cudnn_built="9.10.2",
                pins=(PIN,),
                binaries=(f"{SITE}/torch/lib/libtorch_cuda.so",),
            ),
        ),
    }
    return Machine(**{**fields, **more})


def with_copy(
    machine: Machine, folder: str, version: str, *, cached: bool = False, **more: Any
) -> Machine:
    """The machine with one more whole copy, in ld.so.cache if asked."""
    libraries = cudnn_libraries(folder, version)
    cache = machine.loader.cache or ()
    if cached:
        cache += tuple(CacheEntry(soname=x.soname or "", path=x.path) for x in libraries)
    return msgspec.structs.replace(
        machine,
        libraries=(*machine.libraries, *libraries),
        copies=(*(machine.copies or ()), copy_of(libraries, version, **more)),
        loader=msgspec.structs.replace(machine.loader, cache=cache),
    )


def change(machine: Machine, part: str, **fields: Any) -> Machine:
    """The machine with fields of one of its structs (``system``, ``driver``) replaced."""
    return msgspec.structs.replace(
        machine, **{part: msgspec.structs.replace(getattr(machine, part), **fields)}
    )


def replace_library(on: Machine, path: str, **fields: Any) -> Machine:
    """The machine with one library's facts replaced."""
    assert any(library.path == path for library in on.libraries)
    libraries = tuple(
        msgspec.structs.replace(x, **fields) if x.path == path else x for x in on.libraries
    )
    return msgspec.structs.replace(on, libraries=libraries)


def without_files(machine: Machine, *paths: str) -> Machine:
    """The machine with library files gone."""
    names = {path.rpartition("/")[2] for path in paths}
    folders = {path.rpartition("/")[0] for path in paths}
    return msgspec.structs.replace(
        machine,
        libraries=tuple(x for x in machine.libraries if x.path not in paths),
        copies=tuple(
            msgspec.structs.replace(c, files=tuple(f for f in c.files if f not in names))
            if c.folder in folders
            else c
            for c in machine.copies or ()
        ),
    )


def judge(machine: Machine, **options: Any) -> Report:
    """The report; a crashed rule fails the test."""
    report = run_checks(machine, MATRIX, Options(**options))
    crashed = [(r.rule, r.reason) for r in report.results if r.status == "crash"]
    assert crashed == []
    return report


def problems(machine: Machine, **options: Any) -> list[str]:
    """Ids of errors and warnings, root causes first, consequences left out."""
    found = judge(machine, **options).findings
    return [f.id for f in found if f.severity != "info" and not f.caused_by]


def finding(machine: Machine, id: str, **options: Any) -> Finding:
    """The one finding with this id."""
    found = [f for f in judge(machine, **options).findings if f.id == id]
    assert len(found) == 1, [f.id for f in judge(machine, **options).findings]
    return found[0]


def framework(machine: Machine, **fields: Any) -> Machine:
    return msgspec.structs.replace(
        machine, frameworks=(msgspec.structs.replace(machine.frameworks[0], **fields),)
    )


def gpu(machine: Machine, **fields: Any) -> Machine:
    return msgspec.structs.replace(
        machine, gpus=(msgspec.structs.replace((machine.gpus or ())[0], **fields),)
    )


def no_gpu_answers(machine: Machine, **driver: Any) -> Machine:
    return msgspec.structs.replace(machine, gpus=(), driver=Driver(**driver))


def onnxruntime(version: str, built: str | None = None) -> Framework:
    return msgspec.structs.replace(
        healthy().frameworks[0],
        name="onnxruntime",
        distribution="onnxruntime-gpu",
        version=version,
        cudnn_built=built,
        pins=(),
        binaries=(),
    )
