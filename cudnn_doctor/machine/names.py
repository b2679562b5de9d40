"""Names of library files: which ones matter here, and what a cuDNN file name says."""

from __future__ import annotations

import re
from typing import NamedTuple

_RELEVANT = re.compile(
    r"lib(cudnn|cublas|cublasLt|nvblas|nvrtc|nvrtc-builtins|cuda|cudart|nvJitLink|curand|cufft|"
    r"cusolver|cusparse|nvidia-ml|z|nccl|cudnn_[a-z_]+)(-[0-9a-f]{6,40})?\.so(\.\d+)*(-\w+)?"
)
_CUDNN = re.compile(
    r"libcudnn(?:_(?P<part>[a-z_]+?))?(?P<hash>-[0-9a-f]{6,40})?\.so(?P<suffix>(?:\.\d+)*)"
)
_STARTS = ("libcu", "libnv", "libz.", "libnccl.")
_STATIC = re.compile(r"libcudnn(_[a-z_]+?)?(_static)?(_v\d+)?\.a")


class CudnnName(NamedTuple):
    """A file name such as ``libcudnn_ops.so.9.10.2`` taken apart."""

    part: str
    """``ops``, ``engines_precompiled`` ...; empty for the shim."""
    numbers: tuple[int, ...]
    """``(9, 10, 2)``."""
    hashed: bool
    """Renamed by a wheel repair tool (``libcudnn-1234abcd.so.9``)."""

    @property
    def major(self) -> int | None:
        return self.numbers[0] if self.numbers else None

    @property
    def version(self) -> str | None:
        """Exact release, where the name tells one (three numbers)."""
        return ".".join(map(str, self.numbers[:3])) if len(self.numbers) >= 3 else None

    @property
    def soname(self) -> str:
        """``libcudnn_ops.so.9``."""
        return soname(self.part, self.major)


def soname(part: str, major: int | None) -> str:
    """SONAME of a part: ``("ops", 9)`` is ``libcudnn_ops.so.9``, ``("", 9)`` the shim."""
    middle = f"_{part}" if part else ""
    return f"libcudnn{middle}.so" + (f".{major}" if major is not None else "")


def is_relevant(name: str) -> bool:
    """Whether cuDNN or its users could load a library of this file name."""
    return name.startswith(_STARTS) and _RELEVANT.fullmatch(name) is not None


def parse_cudnn(name: str) -> CudnnName | None:
    """Take a cuDNN shared library's file name apart; None for any other name."""
    match = _CUDNN.fullmatch(name) if name.startswith("libcudnn") else None
    if match is None:
        return None
    numbers = tuple(int(n) for n in match["suffix"].split(".") if n)
    return CudnnName(match["part"] or "", numbers, match["hash"] is not None)


def is_static_cudnn(name: str) -> bool:
    """``libcudnn_static.a``, ``libcudnn_ops_static_v9.a`` ..."""
    return name.startswith("libcudnn") and _STATIC.fullmatch(name) is not None
