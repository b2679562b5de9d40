"""The part of the CUDA driver API (libcuda.so.1) that verification needs, through ctypes.

All work runs on the primary context and the default stream, so that cuDNN, cuBLAS and CuPy share
memory and order without further care.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

P = ctypes.c_void_p
I = ctypes.c_int  # noqa: E741
SIZE = ctypes.c_size_t
PTR = ctypes.c_uint64

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDriverGetVersion": (P,),
    "cuDeviceGetCount": (P,),
    "cuDeviceGet": (P, I),
    "cuDeviceGetName": (P, I, I),
    "cuDeviceGetUuid": (P, I),
    "cuDeviceGetAttribute": (P, I, I),
    "cuDevicePrimaryCtxRetain": (P, I),
    "cuCtxSetCurrent": (P,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (P, P),
    "cuMemAlloc_v2": (P, SIZE),
    "cuMemFree_v2": (PTR,),
    "cuMemcpyHtoD_v2": (PTR, P, SIZE),
    "cuMemcpyDtoH_v2": (P, PTR, SIZE),
    "cuMemcpyDtoDAsync_v2": (PTR, PTR, SIZE, P),
    "cuMemsetD8_v2": (PTR, ctypes.c_ubyte, SIZE),
    "cuEventCreate": (P, ctypes.c_uint),
    "cuEventRecord": (P, P),
    "cuEventSynchronize": (P,),
    "cuEventElapsedTime": (P, P, P),
}
_SM_COUNT, _CC_MAJOR, _CC_MINOR = 16, 75, 76
"""CU_DEVICE_ATTRIBUTE_*."""
ALIGNMENT = 256


class CudaError(Exception):
    """A driver API call that did not return CUDA_SUCCESS."""

    def __init__(self, call: str, code: int, name: str, text: str) -> None:
        self.call, self.code, self.name = call, code, name
        super().__init__(f"{call}: {name} ({text})")


class Device(NamedTuple):
    """The GPU in use."""

    name: str
    uuid: str
    compute_capability: tuple[int, int]
    multiprocessors: int


class Driver:
    """libcuda.so.1, opened; raises OSError where there is none."""

    def __init__(self, path: str = "libcuda.so.1") -> None:
        self._lib = ctypes.CDLL(path)

    def call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._lib, name)
        function.argtypes = _SIGNATURES[name]
        code = function(*arguments)
        if code:
            raise CudaError(name, code, *self._describe(code))

    def _describe(self, code: int) -> tuple[str, str]:
        texts = []
        for getter in (self._lib.cuGetErrorName, self._lib.cuGetErrorString):
            text = ctypes.c_char_p()
            getter.argtypes = (I, P)
            getter(code, ctypes.byref(text))
            texts.append((text.value or b"unknown").decode())
        return texts[0], texts[1]

    def version(self) -> int:
        """Highest CUDA that the driver supports, 13000 for 13.0."""
        number = I()
        self.call("cuDriverGetVersion", ctypes.byref(number))
        return number.value

    def start(self, ordinal: int = 0) -> Device:
        """cuInit, and make the primary context of a visible GPU current."""
        self.call("cuInit", 0)
        device, context = I(), P()
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, len(name), device)
        uuid = (ctypes.c_ubyte * 16)()
        self.call("cuDeviceGetUuid", uuid, device)
        major, minor, sms = (
            self._attribute(which, device.value) for which in (_CC_MAJOR, _CC_MINOR, _SM_COUNT)
        )
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        return Device(name.value.decode(), _uuid_text(bytes(uuid)), (major, minor), sms)

    def _attribute(self, which: int, device: int) -> int:
        value = I()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), which, device)
        return value.value

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")

    def memory(self) -> tuple[int, int]:
        """Free and total device memory, bytes."""
        free, total = SIZE(), SIZE()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def event(self) -> Event:
        return Event(self)


def _uuid_text(raw: bytes) -> str:
    text = raw.hex()
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


class Buffer:
    """Device memory that frees itself."""

    def __init__(self, driver: Driver, size: int) -> None:
        self._driver = driver
        self.size = size
        pointer = PTR()
        self.pointer = 0
        driver.call("cuMemAlloc_v2", ctypes.byref(pointer), max(size, ALIGNMENT))
        self.pointer = pointer.value

    def __del__(self) -> None:
        if self.pointer:
            self._driver.call("cuMemFree_v2", self.pointer)

    def fill(self, byte: int) -> Buffer:
        """Set every byte."""
        self._driver.call("cuMemsetD8_v2", self.pointer, byte, self.size)
        return self

    def write(self, data: bytes | bytearray | memoryview, offset: int = 0) -> Buffer:
        """Copy from the host."""
        view = memoryview(data).cast("B")
        held = ctypes.c_char.from_buffer(bytearray(view) if view.readonly else view)
        self._driver.call(
            "cuMemcpyHtoD_v2", self.pointer + offset, ctypes.addressof(held), view.nbytes
        )
        return self

    def read(self, offset: int = 0, size: int | None = None) -> bytearray:
        """Copy to the host, all or ``size`` bytes; waits for the work queued before."""
        data = bytearray(self.size - offset if size is None else size)
        address = ctypes.addressof(ctypes.c_char.from_buffer(data))
        self._driver.call("cuMemcpyDtoH_v2", address, self.pointer + offset, len(data))
        return data

    def copy_from(self, other: Buffer, offset: int = 0) -> None:
        """Queue a device-to-device copy of the whole of ``other``."""
        self._driver.call(
            "cuMemcpyDtoDAsync_v2", self.pointer + offset, other.pointer, other.size, None
        )


class Event:
    """A point in the default stream."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self.handle = P()
        driver.call("cuEventCreate", ctypes.byref(self.handle), 0)

    def record(self) -> Event:
        self._driver.call("cuEventRecord", self.handle, None)
        return self

    def milliseconds_since(self, start: Event) -> float:
        """Wait for this event; time between the two."""
        self._driver.call("cuEventSynchronize", self.handle)
        elapsed = ctypes.c_float()
        self._driver.call("cuEventElapsedTime", ctypes.byref(elapsed), start.handle, self.handle)
        return elapsed.value
