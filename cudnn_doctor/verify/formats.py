"""Number formats: how real numbers become a type's bit patterns and come back."""

from __future__ import annotations

from typing import Any, NamedTuple

from cudnn_doctor.verify.binding.enums import DataType


class Format(NamedTuple):
    """A storage format and the arithmetic done on it."""

    name: str
    dtype: DataType
    bits: str
    """NumPy dtype of the bit pattern, or of the numbers where NumPy has them."""
    rounding: float
    """Unit roundoff of a value stored in it (half a unit in the last place of 1.0)."""
    product: float
    """Relative error of one product: both operands may first be cut to 11 bits (TF32), which adds
    up in quadrature."""
    accumulation: float
    """Relative error of one addition to the running sum."""
    cuts_off: bool = False
    """Additions cut off (tensor cores) instead of rounding."""

    @property
    def rounding_name(self) -> str:
        """Name of the format that holds the same numbers (TF32 is stored as fp32)."""
        return "fp32" if self.name == "tf32" else self.name

    @property
    def size(self) -> int:
        """Bytes an element."""
        return {"float32": 4, "int32": 4, "float16": 2, "uint16": 2}.get(self.bits, 1)


_FP32, _TENSOR_CORE = 2.0**-24, 2.0**-23
"""Rounding to nearest; tensor cores cut off instead, twice the error."""

FORMATS = {
    f.name: f
    for f in (
        Format("fp32", DataType.FLOAT, "float32", 2.0**-24, _FP32, _FP32),
        Format("tf32", DataType.FLOAT, "float32", 2.0**-24, 2.0**-9.5, _TENSOR_CORE, True),
        Format("fp16", DataType.HALF, "float16", 2.0**-11, _FP32, _TENSOR_CORE, True),
        Format("bf16", DataType.BFLOAT16, "uint16", 2.0**-8, _FP32, _TENSOR_CORE, True),
        Format("int8", DataType.INT8, "int8", 0.0, 0.0, 0.0),
        # FP8 tensor cores of Hopper cut each product to 14 bits of the running sum: random signs.
        Format("fp8", DataType.FP8_E4M3, "uint8", 2.0**-4, 0.0, 2.0**-13),
    )
}


def _e4m3_values() -> list[float]:
    """The numbers of the 256 codes of E4M3 (no infinities; 0x7f and 0xff are NaN)."""
    values = []
    for code in range(256):
        exponent, mantissa = code >> 3 & 15, code & 7
        if code & 127 == 127:
            value = float("nan")
        elif exponent:
            value = (1 + mantissa / 8) * 2.0 ** (exponent - 7)
        else:
            value = mantissa / 8 * 2.0**-6
        values.append(-value if code & 128 else value)
    return values


E4M3 = _e4m3_values()


def encode(values: Any, kind: Format, xp: Any) -> Any:
    """Round float32 values to the format's bit patterns (to nearest, ties to even)."""
    if kind.name == "bf16":
        bits = xp.ascontiguousarray(values, dtype=xp.float32).view(xp.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(xp.uint16)
    if kind.name == "fp8":
        positive = xp.asarray(E4M3[:127])
        middles = (positive[1:] + positive[:-1]) / 2
        codes = xp.searchsorted(middles, xp.abs(values)).astype(xp.uint8)
        return codes | (xp.signbit(values).astype(xp.uint8) << 7)
    if kind.name == "int8":
        return xp.clip(xp.rint(values), -127, 127).astype(xp.int8)
    return xp.asarray(values).astype(kind.bits)


def decode(bits: Any, kind: Format, xp: Any) -> Any:
    """The numbers of bit patterns, as float64."""
    if kind.name == "bf16":
        wide = xp.ascontiguousarray(bits).astype(xp.uint32) << 16
        return wide.view(xp.float32).astype(xp.float64)
    if kind.name == "fp8":
        return xp.asarray(E4M3)[bits]
    return bits.astype(xp.float64)
