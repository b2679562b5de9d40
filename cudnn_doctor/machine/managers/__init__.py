"""One module a package manager, each with ``installed(host)`` and ``owners(host, paths)``."""

from __future__ import annotations

import re

RELEVANT = re.compile(
    r"cudnn|cuda|nvidia|cublas|nvrtc|nvjitlink|tensorrt|nvinfer"
    r"|^lib(?:cu(?:rand|fft|solver|sparse|pti)|nccl)|fabricmanager|nvlsm"
)
"""Names of packages that matter here: CUDA, cuDNN, the driver and what cuDNN needs."""


def spellings(path: str) -> tuple[str, ...]:
    """How a package's file list may write ``path``: with and without merged ``/usr``."""
    if path.startswith("/usr/"):
        return (path, path[4:])
    return (path, "/usr" + path)
