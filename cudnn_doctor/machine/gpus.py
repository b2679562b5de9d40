"""GPUs and driver as NVML tells them, through nvidia-ml-py in a child process.

A child, because NVML may hang in a wedged driver and a damaged libnvidia-ml may kill its process.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
from typing import Any

import msgspec

from cudnn_doctor.machine.host import Host, Ran
from cudnn_doctor.machine.model import Driver, Gpu
from cudnn_doctor.machine.tegra import tegra_gpus

_CHILD = os.path.join(os.path.dirname(__file__), "nvml_child.py")
_ELSEWHERE = ("/usr/lib/wsl/lib/libnvidia-ml.so.1",)
"""Where libnvidia-ml is known to be although the loader may not be told: WSL2."""

TIMEOUT_S = 20.0
"""Without persistence mode, nvmlInit first wakes every GPU: about a second each."""


def probe_gpus(host: Host, timeout: float = TIMEOUT_S) -> tuple[tuple[Gpu, ...] | None, Driver]:
    """All GPUs and what NVML knows about the driver; GPUs are None when NVML gave no answer.

    On a Tegra whose release has no NVML, the device tree tells the GPU.
    ``timeout`` is in seconds. A driver that does not answer in time is told as
    ``NVML_ERROR_TIMEOUT``, a crash inside NVML as ``NVML_ERROR_UNKNOWN``.
    """
    if not host.live:
        return None, Driver()
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        host.fail("gpus", "nvidia-ml-py is not installed beside cudnn-doctor")
        return None, Driver()
    argv = [sys.executable, "-I", "-S", _CHILD, os.path.dirname(spec.origin), *_ELSEWHERE]
    gpus, driver = _gather(host, host.run(argv, timeout))
    return gpus or tegra_gpus(host) or gpus, driver


def _gather(host: Host, ran: Ran) -> tuple[tuple[Gpu, ...] | None, Driver]:
    """Put the child's lines together, whether or not it reached its end."""
    gpus: list[Gpu] = []
    driver: Driver | None = None
    step = "starting"
    done = False
    for line in _lines(ran.out):
        step = line.get("step", step)
        done = done or "done" in line
        if "driver" in line:
            driver = msgspec.convert(line["driver"], Driver)
        if "gpu" in line:
            gpus.append(msgspec.convert(line["gpu"], Gpu))
        if line.get("complaint"):
            host.fail("gpus", line["complaint"])
    if driver is not None and driver.nvml_error is not None:
        return None, driver
    if done:
        return tuple(gpus), driver or Driver()
    host.fail("gpus", f"NVML {_end(ran)} while {step}")
    error = "NVML_ERROR_TIMEOUT" if ran.code is None else "NVML_ERROR_UNKNOWN"
    return (tuple(gpus) or None), msgspec.structs.replace(driver or Driver(), nvml_error=error)


def _lines(text: str) -> list[dict[str, Any]]:
    found = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue  # the last line of a killed child may be cut
        if isinstance(value, dict):
            found.append(value)
    return found


def _end(ran: Ran) -> str:
    if ran.code is None:
        return f"stopped ({ran.err})"
    if ran.code < 0:
        return f"died of {signal.Signals(-ran.code).name}"
    last = ran.err.strip().splitlines()[-1:] or ["no message"]
    return f"ended with {ran.code} ({last[0]})"
