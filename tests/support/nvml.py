"""A stand-in for the driver's NVML, so that the real nvidia-ml-py can be shown any GPU."""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SOURCE = Path(__file__).with_name("nvml_stub.c")
_CODES = {
    "NVML_ERROR_NOT_SUPPORTED": 3,
    "NVML_ERROR_NO_PERMISSION": 4,
    "NVML_ERROR_DRIVER_NOT_LOADED": 9,
    "NVML_ERROR_GPU_IS_LOST": 15,
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": 18,
    "NVML_ERROR_UNKNOWN": 999,
}


class NvmlStub:
    """Builds the library once and makes one described machine a call.

    A GPU is a dict: ``name``, ``cc`` ("8.6"), ``memory`` and ``free`` (bytes), ``uuid``, ``pci``,
    ``mode``, ``ecc``, ``uncorrected``, ``retired``, ``remapping``, ``virtualization``, ``fabric``,
    ``fabric_status``, ``mig_mode`` (numbers as NVML has them), ``mig`` (a list of such dicts) and
    ``refuse`` (function name to error name). What is left out, the stub refuses as not supported.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = itertools.count()

    @functools.cache  # noqa: B019 - one stub a test session
    def _built(self, r610: bool) -> Path:
        path = self._folder / f"stub-{int(r610)}.so"
        macros = ["-DR610"] if r610 else []
        soname = "-Wl,-soname,libnvidia-ml.so.1"
        command = ["gcc", "-shared", "-fPIC", "-O0", *macros, soname, "-o", str(path), str(_SOURCE)]
        subprocess.run(command, check=True)
        return path

    def __call__(
        self,
        gpus: Sequence[dict[str, Any]] = (),
        *,
        driver: str = "570.133.20",
        cuda: str = "12.8",
        error: str | None = None,
        hang: str | None = None,
        crash: str | None = None,
        r610: bool = False,
    ) -> dict[str, str]:
        """The environment variables that let NVML's users meet this machine.

        ``error`` is the error name that nvmlInit gives; ``hang`` and ``crash`` name a function.
        """
        folder = self._folder / str(next(self._number))
        folder.mkdir(parents=True)
        library = folder / f"libnvidia-ml.so.{driver}"
        os.link(self._built(r610), library)
        (folder / "libnvidia-ml.so.1").symlink_to(library.name)
        major, minor = map(int, cuda.split("."))
        lines = [f"driver {driver}", f"nvml {major}.{driver}", f"cuda {major * 1000 + minor * 10}"]
        if error is not None:
            lines.append(f"refuse nvmlInitWithFlags {_CODES[error]}")
        lines += [f"hang {hang}"] if hang else []
        lines += [f"crash {crash}"] if crash else []
        for index, gpu in enumerate(gpus):
            lines += _device(
                "gpu", {"uuid": f"GPU-{index}", "pci": f"00000000:{index:02X}:00.0"} | gpu
            )
            for number, instance in enumerate(gpu.get("mig", ())):
                lines += _device("mig", {"uuid": f"MIG-{index}-{number}"} | instance)
        description = folder / "machine.txt"
        description.write_text("\n".join(lines) + "\n")
        return {"LD_LIBRARY_PATH": str(folder), "NVML_STUB": str(description)}


def _device(kind: str, facts: dict[str, Any]) -> list[str]:
    refused = [f"refuse {name} {_CODES[code]}" for name, code in facts.get("refuse", {}).items()]
    plain = [f"{key} {value}" for key, value in facts.items() if key not in ("mig", "refuse")]
    return [kind, *plain, *refused]
