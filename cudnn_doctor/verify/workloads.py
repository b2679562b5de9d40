"""What is convolved: shapes as values. Each is small enough for an exact reference."""

from __future__ import annotations

from typing import NamedTuple

from cudnn_doctor.verify.binding.graph import Window


def output_size(size: int, taps: int, padding: int, stride: int, dilation: int) -> int:
    """Length of a convolution's output along one dimension."""
    return (size + 2 * padding - dilation * (taps - 1) - 1) // stride + 1


def output_dims(x: tuple[int, ...], w: tuple[int, ...], window: Window) -> tuple[int, ...]:
    """Dimensions of the result of convolving x (N, C, ...) with w (K, C/groups, ...)."""
    spatial = zip(x[2:], w[2:], window.padding, window.stride, window.dilation, strict=True)
    return (x[0], w[0], *(output_size(*sizes) for sizes in spatial))


class Convolution(NamedTuple):
    """One convolution problem; dimensions N, C, spatial and K, C/groups, taps."""

    name: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    window: Window
    groups: int = 1
    basic: bool = False
    """Every release does it on every GPU: refusing it is a fault, not an answer."""
    large: bool = False
    """Left to ``--full``."""


def _window(rank: int, padding: int = 0, stride: int = 1, dilation: int = 1) -> Window:
    return Window((padding,) * rank, (stride,) * rank, (dilation,) * rank)


CONVOLUTIONS = (
    Convolution("3x3", (2, 64, 28, 28), (64, 64, 3, 3), _window(2, 1), basic=True),
    Convolution("1x1", (2, 128, 28, 28), (64, 128, 1, 1), _window(2), basic=True),
    Convolution("7x7 stride 2", (2, 16, 64, 64), (32, 16, 7, 7), _window(2, 3, 2), basic=True),
    Convolution("3x3 dilated", (2, 32, 28, 28), (32, 32, 3, 3), _window(2, 2, 1, 2)),
    Convolution("3x3 grouped", (2, 64, 28, 28), (64, 16, 3, 3), _window(2, 1), groups=4),
    Convolution("3x3 depthwise", (2, 64, 28, 28), (64, 1, 3, 3), _window(2, 1), groups=64),
    Convolution("odd sizes", (3, 24, 29, 31), (40, 24, 5, 3), Window((2, 1), (1, 2), (1, 1))),
    Convolution("3x3x3", (1, 32, 8, 14, 14), (32, 32, 3, 3, 3), _window(3, 1)),
    Convolution("3x3 wide", (8, 256, 56, 56), (256, 256, 3, 3), _window(2, 1), large=True),
    Convolution("1x1 deep", (8, 1024, 14, 14), (512, 1024, 1, 1), _window(2), large=True),
    Convolution("3x3x3 wide", (2, 64, 16, 28, 28), (64, 64, 3, 3, 3), _window(3, 1), large=True),
)
SLOW = frozenset(
    ("3x3 depthwise", kind, layout, "filter")
    for kind, layout in (("fp16", "nchw"), ("bf16", "nchw"), ("bf16", "nhwc"))
)
"""(shape, type, layout, direction) for which cuDNN builds kernels for seconds: for ``--full``."""
QUICK = "3x3"
FUSED = Convolution("3x3", (2, 64, 28, 28), (64, 64, 3, 3), _window(2, 1))
LAYOUTS = ("nchw", "nhwc")


class Attention(NamedTuple):
    """Scaled dot-product attention: batch, heads, sequence, head size."""

    batch: int = 2
    heads: int = 4
    sequence: int = 256
    size: int = 64


class Speed(NamedTuple):
    """One large convolution whose rate is measured, in types that the GPU has."""

    name: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    window: Window
    types: tuple[str, ...]

    @property
    def operations(self) -> float:
        """Floating-point operations of one run (a multiplication and an addition a term)."""
        total = 2.0
        for n in (*output_dims(self.x, self.w, self.window), *self.w[1:]):
            total *= n
        return total


SPEED = (
    Speed(
        "3x3, 256x256x56x56",
        (256, 256, 56, 56),
        (256, 256, 3, 3),
        _window(2, 1),
        ("bf16", "fp16", "tf32"),
    ),
    Speed("3x3, 64x256x28x28", (64, 256, 28, 28), (256, 256, 3, 3), _window(2, 1), ("fp32",)),
)
