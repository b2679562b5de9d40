"""Open one named cuDNN copy and call its functions, every status checked."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from cudnn_doctor.verify.binding.status import NOT_EXPORTED, CudnnError

P = ctypes.c_void_p
I = ctypes.c_int  # noqa: E741
U = ctypes.c_uint32
L = ctypes.c_int64
SIZE = ctypes.c_size_t
D = ctypes.c_double
F = ctypes.c_float

Signatures = Mapping[str, tuple[Any, ...]]

_OWN: Signatures = {
    "cudnnCreate": (P,),
    "cudnnDestroy": (P,),
    "cudnnSetStream": (P, P),
}
_LIBRARY = re.compile(r"libcudnn(?:_(\w+))?\.so\.(\d+)")
_ORDER = ("graph", "ops_infer", "ops_train", "ops", "cnn_infer", "adv_infer")


def load_order(sonames: Iterable[str]) -> list[str]:
    """Order in which a copy's libraries can be opened so that each one's DT_NEEDED is there.

    In 9.x all need graph, cnn and adv need ops; in 8.x all need ops_infer, and a ``_train`` its
    ``_infer`` (DT_NEEDED of every wheel from 8.5.0 to 9.28.1). The shim needs none and comes last.
    """

    def rank(soname: str) -> tuple[int, str]:
        match = _LIBRARY.match(soname)
        part = match.group(1) if match else ""
        if not part:
            return len(_ORDER) + 1, soname
        return _ORDER.index(part) if part in _ORDER else len(_ORDER), soname

    return sorted(sonames, key=rank)


def open_global(path: str) -> ctypes.CDLL:
    """dlopen by absolute path, symbols global; raises OSError with the loader's own words."""
    return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL | os.RTLD_NOW)


def mapped_files(pattern: str = "libcudnn", maps: str = "/proc/self/maps") -> list[str]:
    """Real paths of the mapped files whose name contains ``pattern``, sorted; none where there is
    no /proc to tell (a bare chroot)."""
    try:
        with open(maps, encoding="utf-8", errors="replace") as file:
            paths = (line.split(maxsplit=5)[5:] for line in file)
            found = {path[0].rstrip("\n") for path in paths if path}
    except OSError:
        return []
    return sorted(p for p in found if pattern in p.rsplit("/", 1)[-1])


class Cudnn:
    """The functions of one opened shim (``libcudnn.so.N``)."""

    def __init__(self, shim: ctypes.CDLL) -> None:
        self._shim = shim
        self._signatures: dict[str, tuple[Any, ...]] = dict(_OWN)
        self.handle = P()
        self._version: int | None = None

    def declare(self, signatures: Signatures) -> None:
        """Make a layer's functions callable."""
        self._signatures.update(signatures)

    def has(self, name: str) -> bool:
        """Whether the shim exports a function."""
        return hasattr(self._shim, name)

    def number(self, name: str) -> int:
        """Result of a function without arguments that returns a size_t (cudnnGetVersion...).

        Raises CudnnError where it is not exported.
        """
        function = getattr(self._shim, name, None)
        if function is None:
            raise CudnnError(name, NOT_EXPORTED)
        function.restype, function.argtypes = SIZE, ()
        return int(function())

    @property
    def version(self) -> int:
        """cudnnGetVersion() as a number, such as 91900."""
        if self._version is None:
            self._version = self.number("cudnnGetVersion")
        return self._version

    def call(self, name: str, *arguments: Any) -> None:
        """Call a declared function; raises CudnnError unless it returns success."""
        function = getattr(self._shim, name, None)
        if function is None:
            raise CudnnError(name, NOT_EXPORTED)
        function.argtypes = self._signatures[name]
        code = function(*arguments)
        if code:
            raise CudnnError(name, code, self.last_error())

    def last_error(self) -> str:
        """Text of cudnnGetLastErrorString (9.x); empty where there is none."""
        function = getattr(self._shim, "cudnnGetLastErrorString", None)
        if function is None:
            return ""
        buffer = ctypes.create_string_buffer(1024)
        function.restype, function.argtypes = None, (ctypes.c_char_p, SIZE)
        function(buffer, len(buffer))
        return " ".join(buffer.value.decode("utf-8", "replace").split())

    def create(self, stream: int | None = None) -> None:
        """cudnnCreate, and set the stream."""
        self.call("cudnnCreate", ctypes.byref(self.handle))
        if stream is not None:
            self.call("cudnnSetStream", self.handle, stream)


class Descriptor:
    """A legacy descriptor that destroys itself: ``cudnnCreate<kind>Descriptor`` and back."""

    def __init__(self, cudnn: Cudnn, kind: str) -> None:
        self._cudnn = cudnn
        self._kind = kind
        self.pointer = P()
        cudnn.call(f"cudnnCreate{kind}Descriptor", ctypes.byref(self.pointer))

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return self.pointer

    def __del__(self) -> None:
        if self.pointer:
            self._cudnn.call(f"cudnnDestroy{self._kind}Descriptor", self.pointer)


def descriptor_signatures(*kinds: str) -> dict[str, tuple[Any, ...]]:
    """Signatures of the create and destroy functions of descriptor kinds."""
    return {
        f"cudnn{verb}{kind}Descriptor": (P,) for kind in kinds for verb in ("Create", "Destroy")
    }


def ints(values: Iterable[int]) -> ctypes.Array[ctypes.c_int]:
    """A C array of int."""
    items = list(values)
    return (I * len(items))(*items)
