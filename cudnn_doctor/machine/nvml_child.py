"""Program that asks NVML and prints one JSON object a line; run by `gpus` in a child process.

It is run as a file, isolated and without site-packages, so it imports nothing of this package.
``argv[1]`` is the folder of nvidia-ml-py's ``pynvml`` module, ``argv[2:]`` are further paths where
libnvidia-ml.so.1 may be when the loader does not know it. Lines: ``{"step": ...}`` before each
step, so that a crash or hang tells where it was; ``{"driver": {...}}``; ``{"gpu": {...}}`` each.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":
    sys.path.append(sys.argv[1])

import pynvml as nv

_ERROR_NAMES = {
    code: name for name, code in sorted(vars(nv).items()) if name.startswith("NVML_ERROR_")
}
_COMPUTE_MODES = {0: "default", 2: "prohibited", 3: "exclusive-process"}
_VIRTUALIZATION = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host-vgpu", 4: "host-vsga"}
_FABRIC_STATES = {0: "not-supported", 1: "not-started", 2: "in-progress", 3: "completed"}
_UNCORRECTED, _SINCE_BOOT = 1, 0


def error_name(error: nv.NVMLError) -> str:
    return str(_ERROR_NAMES.get(error.value, f"NVML_ERROR_{error.value}"))


def say(**line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class Reader:
    """Calls NVML for one field at a time and remembers what it refused."""

    def __init__(self) -> None:
        self.refused: list[str] = []

    def __call__(self, field: str, *asks: Callable[[], Any]) -> Any:
        """The first answer of several ways to ask; None when all were refused.

        The last refusal is told: the ways go from the newest function to the oldest.
        """
        why = ""
        for ask in asks:
            try:
                return ask()
            except nv.NVMLError as error:
                why = error_name(error)
            except AttributeError:  # an nvidia-ml-py that does not know the function
                why = "NVML_ERROR_FUNCTION_NOT_FOUND"
        self.refused.append(f"{field}: {why}")
        return None


def text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def load(paths: list[str]) -> str | None:
    """Load NVML, also from where the loader does not look (WSL2).

    Returns None when that worked, the loader's complaint when the file is there but unusable, and
    nothing ("") when there is no such file.
    """
    for path in ["libnvidia-ml.so.1", *paths]:
        try:
            ctypes.CDLL(path)
            return None
        except OSError as error:
            complaint = str(error)
            if "No such file" not in complaint:
                return complaint
    return ""


def mapped_library() -> str | None:
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            if "libnvidia-ml.so" in line:
                return line[line.index("/") :].rstrip("\n")
    return None


def driver_facts() -> dict[str, Any]:
    read = Reader()
    cuda = read("cuda", nv.nvmlSystemGetCudaDriverVersion_v2, nv.nvmlSystemGetCudaDriverVersion)
    return {
        "version": read("version", lambda: text(nv.nvmlSystemGetDriverVersion())),
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        "nvml_library": mapped_library(),
    }


def fabric_state(gpu: Any) -> str:
    def ask_v() -> Any:
        info = nv.c_nvmlGpuFabricInfoV_t()
        nv.nvmlDeviceGetGpuFabricInfoV(gpu, ctypes.byref(info))
        return info

    def ask_old() -> Any:
        info = nv.c_nvmlGpuFabricInfo_t()
        nv.nvmlDeviceGetGpuFabricInfo(gpu, ctypes.byref(info))
        return info

    try:
        info = ask_v()
    except nv.NVMLError as error:
        if error.value == nv.NVML_ERROR_NOT_SUPPORTED:
            return "not-supported"
        info = ask_old()
    state = _FABRIC_STATES.get(info.state, str(info.state))
    return "failed" if state == "completed" and info.status else state


def pages_pending(gpu: Any) -> bool:
    """Whether a reset is due: remapped rows (Ampere and later) or retired pages (before)."""
    try:
        return bool(nv.nvmlDeviceGetRemappedRows(gpu)[2])
    except nv.NVMLError:
        return bool(nv.nvmlDeviceGetRetiredPagesPendingStatus(gpu))


def mig_instances(gpu: Any) -> list[dict[str, Any]]:
    found = []
    for index in range(nv.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            instance = nv.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
        except nv.NVMLError as error:
            if error.value in (nv.NVML_ERROR_NOT_FOUND, nv.NVML_ERROR_INVALID_ARGUMENT):
                continue
            raise
        found.append(mig_facts(instance))
    return found


def mig_facts(instance: Any) -> dict[str, Any]:
    read = Reader()
    name = read("name", lambda: text(nv.nvmlDeviceGetName(instance))) or ""
    return {
        "uuid": read("uuid", lambda: text(nv.nvmlDeviceGetUUID(instance))) or "",
        "profile": name.partition(" MIG ")[2],
        "memory_total": read("memory", lambda: nv.nvmlDeviceGetMemoryInfo(instance).total),
    }


def gpu_facts(index: int) -> dict[str, Any]:
    read = Reader()
    gpu = read("handle", lambda: nv.nvmlDeviceGetHandleByIndex(index))
    if gpu is None:
        return {"index": index, "unreadable": read.refused}
    capability = read(
        "compute_capability", lambda: "{}.{}".format(*nv.nvmlDeviceGetCudaComputeCapability(gpu))
    )
    memory = read("memory", lambda: nv.nvmlDeviceGetMemoryInfo(gpu))
    mig = read("mig_enabled", lambda: bool(nv.nvmlDeviceGetMigMode(gpu)[0]))
    mode = read("compute_mode", lambda: nv.nvmlDeviceGetComputeMode(gpu))
    ecc = read("ecc_enabled", lambda: bool(nv.nvmlDeviceGetEccMode(gpu)[0]))
    virtual = read("virtualization", lambda: nv.nvmlDeviceGetVirtualizationMode(gpu))
    facts = {
        "index": index,
        "name": read("name", lambda: text(nv.nvmlDeviceGetName(gpu))) or "",
        "uuid": read("uuid", lambda: text(nv.nvmlDeviceGetUUID(gpu))) or "",
        "pci_bus_id": read("pci_bus_id", lambda: text(nv.nvmlDeviceGetPciInfo(gpu).busId)) or "",
        "compute_capability": capability,
        "memory_total": memory.total if memory else None,
        "memory_free": memory.free if memory else None,
        "mig_enabled": mig,
        "mig_instances": (read("mig_instances", lambda: mig_instances(gpu)) or []) if mig else [],
        "compute_mode": _COMPUTE_MODES.get(mode),
        "ecc_enabled": ecc,
        "ecc_uncorrected": read(
            "ecc_uncorrected",
            lambda: nv.nvmlDeviceGetTotalEccErrors(gpu, _UNCORRECTED, _SINCE_BOOT),
        )
        if ecc
        else None,
        "retired_pages_pending": read("retired_pages_pending", lambda: pages_pending(gpu)),
        "virtualization": _VIRTUALIZATION.get(virtual),
        "fabric_state": read("fabric_state", lambda: fabric_state(gpu)),
    }
    return {**facts, "unreadable": read.refused}


def main() -> None:
    say(step="loading libnvidia-ml.so.1")
    complaint = load(sys.argv[2:])
    if complaint is not None:
        say(driver={"nvml_error": "NVML_ERROR_LIBRARY_NOT_FOUND"}, complaint=complaint)
        return
    say(step="nvmlInit")
    try:
        nv.nvmlInit()
        count = nv.nvmlDeviceGetCount()
    except nv.NVMLError as error:
        say(driver={"nvml_error": error_name(error), "nvml_library": mapped_library()})
        return
    say(step="asking for the driver's version")
    say(driver=driver_facts())
    for index in range(count):
        say(step=f"asking GPU {index}")
        say(gpu=gpu_facts(index))
    say(done=True)
    sys.stdout.flush()
    # nvmlShutdown may take long without persistence mode, and nothing is left to keep in order.
    os._exit(0)


if __name__ == "__main__":
    main()
