"""Runs in a child process, under any Python from 3.7: opens cuDNN and tells what got mapped.

Usage: ``python trace_child.py FD library NAME`` or ``python trace_child.py FD framework NAME``.
One JSON object a line goes to file descriptor FD: ``{"step": ...}`` before each thing that may kill
the process, ``{"mapped": [...]}`` after it, ``{"version": N}``, and ``{"error": ...}``.
Imports nothing of cudnn_doctor: the Python that runs it need not have it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

_CHECKS = (
    "cudnnGraphVersionCheck",
    "cudnnOpsVersionCheck",
    "cudnnCnnVersionCheck",
    "cudnnAdvVersionCheck",
    "cudnnOpsInferVersionCheck",
    "cudnnCnnInferVersionCheck",
    "cudnnAdvInferVersionCheck",
)
"""Exported by the shim; calling one opens the sublibrary that it belongs to."""
_FRAMEWORKS = {
    "torch": "import torch; torch.backends.cudnn.version()",
    "vllm": "import torch; torch.backends.cudnn.version()",
    "xformers": "import torch; torch.backends.cudnn.version()",
    "tensorflow": "import tensorflow as tf; tf.config.list_physical_devices('GPU')",
    "jax": "import jax; jax.devices()",
    "onnxruntime": (
        "import onnxruntime, ctypes, os; d = os.path.join(os.path.dirname(onnxruntime.__file__),"
        " 'capi'); ctypes.CDLL(d + '/libonnxruntime_providers_shared.so', ctypes.RTLD_GLOBAL);"
        " ctypes.CDLL(d + '/libonnxruntime_providers_cuda.so')"
    ),
    "ctranslate2": "import ctranslate2",
    "faster-whisper": "import ctranslate2",
    "whisperx": "import torch; torch.backends.cudnn.version()",
    "paddlepaddle": "import paddle; paddle.device.get_cudnn_version()",
    "cupy": "from cupy_backends.cuda.libs import cudnn; cudnn.getVersion()",
    "transformer-engine": "import transformer_engine.common",
    "nvidia-cudnn-frontend": "import cudnn; cudnn.backend_version()",
    "mxnet": "import mxnet",
    "tensorrt": "import tensorrt",
}
"""The cheapest code that makes each framework map cuDNN."""


class _Child:
    def __init__(self, fd: int) -> None:
        self.fd = fd

    def say(self, **what: object) -> None:
        os.write(self.fd, (json.dumps(what) + "\n").encode())

    def step(self, text: str) -> None:
        self.say(mapped=mapped())
        self.say(step=text)


def mapped() -> list[str]:
    """Paths of the mapped libcudnn files, in the order of their addresses, each once."""
    found: list[str] = []
    with open("/proc/self/maps", errors="surrogateescape") as lines:
        for line in lines:
            path = line.rstrip("\n").split(None, 5)[5:]
            if path and "libcudnn" in os.path.basename(path[0]) and path[0] not in found:
                found.append(path[0])
    return found


def ask(child: _Child, library: ctypes.CDLL) -> None:
    """Ask an open shim for its version, then let it open its sublibraries."""
    child.step("cudnnGetVersion")
    library.cudnnGetVersion.restype = ctypes.c_size_t
    child.say(version=library.cudnnGetVersion())
    for name in _CHECKS:
        if hasattr(library, name):
            child.step(name)
            getattr(library, name)()
    child.say(mapped=mapped())


def open_library(child: _Child, name: str) -> None:
    """Open one shim (path or SONAME) as a plain program would."""
    child.step("open " + name)
    ask(child, ctypes.CDLL(name))


def run_framework(child: _Child, name: str) -> None:
    """Import a framework so that it maps cuDNN, and ask the shim that it got."""
    code = _FRAMEWORKS.get(name)
    if code is None:
        child.say(error="it is not known how to make " + name + " load cuDNN")
        return
    child.step("run `" + code + "`")
    exec(code, {"__name__": "cudnn_doctor_trace"})  # noqa: S102 - one of the lines above
    shims = [p for p in mapped() if os.path.basename(p).startswith(("libcudnn.so", "libcudnn-"))]
    if not shims:
        child.say(mapped=mapped())
        child.say(error="no libcudnn is mapped after `" + code + "`")
        return
    ask(child, ctypes.CDLL(shims[0]))


def main() -> None:
    fd, mode, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    sys.path.pop(0)  # this file's folder: its modules would hide others of the same name
    os.dup2(2, 1)  # what a framework prints is no answer
    child = _Child(fd)
    try:
        {"library": open_library, "framework": run_framework}[mode](child, name)
        child.say(done=True)
    except BaseException as error:
        child.say(mapped=mapped())
        child.say(error=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
