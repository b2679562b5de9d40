"""What a workload runs with: cuDNN, the GPU, random numbers and exact arithmetic."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from cudnn_doctor.verify import bounds, formats
from cudnn_doctor.verify.binding.library import Cudnn
from cudnn_doctor.verify.cuda import Buffer, Device, Driver

POISONS = (0xFF, 0x7F)
"""Bytes that outputs hold before the first and the second run; 0xff is NaN in every float type."""


class Unsupported(Exception):
    """cuDNN or the GPU does not do this; the text says which and why."""


class Uncompiled(Unsupported):
    """No engine that compiles its kernels at run time is proposed."""


class Refused(Exception):
    """cuDNN does not do what every release does on every GPU: a fault, not an answer."""


class Wrong(Exception):
    """A result is outside its error bound."""


class Operand(NamedTuple):
    """An input: its numbers exactly (float64) and its bit patterns on the device."""

    exact: Any
    buffer: Buffer

    @property
    def pointer(self) -> int:
        return self.buffer.pointer


class Lab:
    """The means of one child process; ``xp`` is NumPy or CuPy."""

    def __init__(self, cudnn: Cudnn, driver: Driver, device: Device, seed: int, xp: Any) -> None:
        import numpy

        self.cudnn, self.driver, self.device, self.xp = cudnn, driver, device, xp
        self._numpy = numpy
        self._seed = seed
        self.workspace = Buffer(driver, 1 << 20)

    def random(self, label: str, dims: tuple[int, ...], scale: float = 1.0) -> Any:
        """Normally distributed float32 numbers, the same for the same seed and label."""
        digest = hashlib.blake2b(label.encode(), digest_size=8).digest()
        generator = self._numpy.random.default_rng([self._seed, int.from_bytes(digest, "big")])
        values = generator.standard_normal(dims, dtype=self._numpy.float32)
        return self.xp.asarray(values * self._numpy.float32(scale))

    def operand(
        self, values: Any, kind: formats.Format, axes: tuple[int, ...] | None = None
    ) -> Operand:
        """Round to the format and upload, memory order of dimensions by ``axes``."""
        bits = formats.encode(values, kind, self.xp)
        stored = bits if axes is None else bits.transpose(axes)
        return Operand(formats.decode(bits, kind, self.xp), self.upload(stored))

    def upload(self, array: Any) -> Buffer:
        data = self._host(self.xp.ascontiguousarray(array))
        return Buffer(self.driver, data.nbytes).write(data.reshape(-1).view(self._numpy.uint8))

    def _host(self, array: Any) -> Any:
        return array.get() if hasattr(array, "get") else array

    def output(self, dims: tuple[int, ...], kind: formats.Format) -> Buffer:
        size = kind.size
        for n in dims:
            size *= n
        return Buffer(self.driver, size)

    def read(
        self,
        buffer: Buffer,
        dims: tuple[int, ...],
        kind: formats.Format,
        axes: tuple[int, ...] | None = None,
    ) -> Any:
        """Download as float64, dimensions in their usual order."""
        return self.decode(buffer.read(), dims, kind, axes)

    def decode(
        self,
        contents: bytearray,
        dims: tuple[int, ...],
        kind: formats.Format,
        axes: tuple[int, ...] | None = None,
    ) -> Any:
        """Like `read`, of what was downloaded before."""
        stored = dims if axes is None else tuple(dims[a] for a in axes)
        bits = self._numpy.frombuffer(contents, dtype=kind.bits).reshape(stored)
        if axes is not None:
            bits = bits.transpose(self._numpy.argsort(axes))
        return formats.decode(self.xp.asarray(bits), kind, self.xp)

    def reserve(self, size: int) -> tuple[int, int]:
        """Pointer and size of a workspace of at least that many bytes."""
        if size > self.workspace.size:
            self.release()  # the old one goes first
            self.workspace = Buffer(self.driver, size)
        return self.workspace.pointer, size

    def release(self) -> None:
        """Give a large workspace back."""
        self.workspace = Buffer(self.driver, 1 << 20)

    def repeat(self, block: Any, elements: int) -> Buffer:
        """Device memory filled with a block of bit patterns over and over, rounded up to whole."""
        one = self.upload(block)
        buffer = Buffer(self.driver, -(-elements // block.size) * one.size)
        for at in range(0, buffer.size, one.size):
            buffer.copy_from(one, at)
        self.driver.synchronize()
        return buffer

    def unravel(self, number: int, dims: tuple[int, ...]) -> tuple[Any, ...]:
        """Index in an array of these dimensions of its element of that number."""
        found: tuple[Any, ...] = self._numpy.unravel_index(number, dims)
        return found

    def check(self, result: Any, exact: Any, bound: Any, what: str = "") -> bounds.Comparison:
        """Compare; raises Wrong when any element is outside its bound."""
        comparison = bounds.compare(result, exact, bound, self.xp)
        if not comparison.ok:
            raise Wrong(f"{what}: {comparison}" if what else str(comparison))
        return comparison

    def at_least(self, major: int, minor: int = 0) -> bool:
        """Whether the GPU has this compute capability or a newer one."""
        return self.device.compute_capability >= (major, minor)


def run_twice(outputs: dict[str, Buffer], run: Any) -> tuple[dict[str, bytearray], bool]:
    """Poison the outputs, run; twice. The second run's contents, and whether both agree bitwise."""
    seen: list[dict[str, bytearray]] = []
    for poison in POISONS:
        for buffer in outputs.values():
            buffer.fill(poison)
        run()
        seen.append({name: buffer.read() for name, buffer in outputs.items()})
    return seen[0], seen[0] == seen[1]
