"""The NVIDIA driver beyond NVML: kernel module, library files, Fabric Manager, Tegra release."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

import msgspec

from cudnn_doctor.machine.container import container_kind
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.kernel import speaks_for
from cudnn_doctor.machine.model import Driver, Gpu
from cudnn_doctor.machine.pci import is_nvswitch, probe_pci

_NVRM = re.compile(
    r"^NVRM version:.*?Kernel Module(?P<open> for \S+)?\s+(?P<version>\d+\.\S+)", re.M
)
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")
_L4T = re.compile(r"# R(\d+) \(release\), REVISION: ([\d.]+)")
_LIBRARY_FOLDERS = (
    "/usr/lib/*-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/*-linux-gnu/nvidia",
    "/usr/lib/*-linux-gnu/nvidia/current",
    "/usr/lib/nvidia-*",
    "/usr/lib64/nvidia",
    "/run/opengl-driver/lib",
)
"""Where distributions, NVIDIA's installer, WSL2, container runtimes and NixOS put libnvidia-ml."""


def complete_driver(host: Host, driver: Driver, gpus: Sequence[Gpu] = ()) -> Driver:
    """``driver`` (NVML's part) with everything that files tell; ``gpus`` help to see a fabric."""
    kernel, flavour = _kernel_module(host)
    library = _library_version(host, driver)
    suspect = driver.nvml_error is not None or (library is not None and library != kernel)
    manager, manager_version = _fabric_manager(host, gpus)
    return msgspec.structs.replace(
        driver,
        version=driver.version or kernel,
        kernel_version=kernel,
        kernel_flavour=flavour,
        library_version=library,
        uvm_loaded=_uvm_loaded(host),
        module_on_disk=_module_on_disk(host, thorough=suspect),
        fabric_manager=manager,
        fabric_manager_version=manager_version,
        jetpack=_jetpack(host),
    )


def _kernel_module(host: Host) -> tuple[str | None, str | None]:
    """Version of the loaded module and its flavour (``open`` or ``proprietary``)."""
    version = flavour = None
    if speaks_for(host, "/sys"):
        version = (host.text("/sys/module/nvidia/version", 64) or "").strip() or None
    if speaks_for(host, "/proc"):
        match = _NVRM.search(host.text("/proc/driver/nvidia/version") or "")
        if match:
            version = version or match["version"]
            flavour = "open" if match["open"] else "proprietary"
    return version, flavour


def _library_version(host: Host, driver: Driver) -> str | None:
    """From the real file name of libnvidia-ml: of the one that NVML was loaded from, else of the
    first that is found. WSL2's has no version in its name."""
    if driver.nvml_library is not None:
        return _named_version(host.real(driver.nvml_library) or driver.nvml_library)
    for folder in _library_folders(host):
        real = host.real(f"{folder}/libnvidia-ml.so.1")
        versions = [_named_version(real)] if real else []
        versions += map(_named_version, host.glob(f"{folder}/libnvidia-ml.so.*.*"))
        known = [version for version in versions if version]
        if known:
            return known[0]
    return None


def _library_folders(host: Host) -> Iterator[str]:
    for folder in host.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if folder.startswith("/"):
            yield folder
    for pattern in _LIBRARY_FOLDERS:
        yield from host.glob(pattern)


def _named_version(path: str) -> str | None:
    version = path.rpartition(".so.")[2]
    return version if _VERSION.fullmatch(version) else None


def _uvm_loaded(host: Host) -> bool | None:
    if speaks_for(host, "/sys") and host.is_dir("/sys/module"):
        if host.is_dir("/sys/module/nvidia_uvm"):
            return True
        known = True
    else:
        known = False
    if speaks_for(host, "/proc"):
        devices = host.text("/proc/devices")
        if devices is not None:
            return bool(re.search(r"^ *\d+ nvidia-uvm$", devices, re.MULTILINE))
    return False if known else None


def _module_on_disk(host: Host, *, thorough: bool) -> str | None:
    """Version of the nvidia module that the running kernel would load next.

    Reading a compressed module takes a second, so that is done only when ``thorough``.
    """
    if not host.live:
        return None
    release = os.uname().release
    dkms = host.link(f"/var/lib/dkms/nvidia/kernel-{release}-{os.uname().machine}")
    if dkms is not None and _VERSION.fullmatch(dkms.split("/")[0]):
        return dkms.split("/")[0]
    folder = f"/lib/modules/{release}"
    listed = host.text(f"{folder}/modules.dep", 1 << 24) or ""
    match = re.search(r"^(\S*/nvidia\.ko(\.\w+)?):", listed, re.MULTILINE)
    if match is None or (match[2] and not thorough):
        return None
    ran = host.run(["modinfo", "-F", "version", os.path.join(folder, match[1])])
    return ran.out.strip() or None


def _fabric_manager(host: Host, gpus: Sequence[Gpu]) -> tuple[str | None, str | None]:
    """State and version of Fabric Manager; None where no NVSwitch is or nothing can be told.

    A container cannot see the host's services, so there only a running one counts.
    """
    switches = any(map(is_nvswitch, probe_pci(host) or ()))
    waiting = any(gpu.fabric_state in ("not-started", "in-progress", "failed") for gpu in gpus)
    if not host.live or not (switches or waiting):
        return None, None
    program = host.which("nv-fabricmanager")
    version = None
    if program is not None:
        match = _VERSION.search(host.run([program, "--version"], timeout=3).out)
        version = match[0] if match else None
    # The kernel cuts the names of processes to 15 characters.
    if any(host.text(path, 64) == "nv-fabricmanage\n" for path in host.glob("/proc/[0-9]*/comm")):
        return "running", version
    if container_kind(host) is not None or any(g.fabric_state == "completed" for g in gpus):
        return None, version
    return ("stopped" if program else "not-installed"), version


def _jetpack(host: Host) -> str | None:
    """The L4T release on Tegra: ``R36.4.0``; the board's name when no file tells the release."""
    match = _L4T.search(host.text("/etc/nv_tegra_release") or "")
    if match:
        return f"R{match[1]}.{match[2]}"
    if not speaks_for(host, "/proc"):
        return None
    model = (host.text("/proc/device-tree/model", 256) or "").rstrip("\0\n")
    return model if re.search(r"Jetson|Tegra", model) else None
