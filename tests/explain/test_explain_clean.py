"""Logs without a fault of ours, hostile input, and the bounds of time and memory."""

from __future__ import annotations

import io
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudnn_doctor.explain import explain, explain_text

CLEAN = {
    "compiler": "gcc -O2 -c a.c\na.c:3:10: warning: unused variable 'x' [-Wunused-variable]\n"
    "a.c:9:1: error: expected ';' before '}' token\nmake: *** [Makefile:3: a.o] Error 1\n"
    "/usr/bin/ld: cannot find -lfoo: No such file or directory\n",
    "web": '10.0.0.1 - - [01/May/2025:10:00:00 +0000] "GET /a HTTP/1.1" 404 12\n'
    "upstream timed out (110: Connection timed out)\nopen() failed (13: Permission denied)\n"
    "OSError: [Errno 28] No space left on device: '/var/log/nginx/access.log'\n",
    "training": "PyTorch version: 2.9.1+cu128\ncuDNN version: 91002\nCUDA available: True\n"
    "GPU 0: NVIDIA H100 80GB HBM3\nepoch 1 loss 0.93 half precision conv\nepoch 2 loss 0.51\n",
    "tensorflow": "Created device /job:localhost/replica:0/task:0/device:GPU:0 with 14000 MB memory"
    ":  -> device: 0, name: Tesla T4, pci bus id: 0000:00:04.0, compute capability: 7.5\n"
    "Loaded cuDNN version 8907\n",
    "rocm": "HIP error: no kernel image is available for execution on the device\n"
    "MIOpen(HIP): Warning [SQLiteBase] Missing system database file: gfx90a.kdb\n"
    "rocm-smi: ERROR: no AMD GPUs were found\nlibamdhip64.so.6: cannot open shared object file: "
    "No such file or directory\n",
    "apt": "Get:1 http://archive.example noble InRelease\n python3-foo : Depends: bar (= 1) but 2 is "  # noqa: E501
    "to be installed\nE: Unable to locate package foo\n",
    "pip": "Collecting requests\n  Downloading requests-2.32.3-py3-none-any.whl (64 kB)\n"
    "Successfully installed requests-2.32.3 nvidia-cudnn-cu12-9.10.2.21\n",
    "other-library": "ImportError: libpq.so.5: cannot open shared object file: No such file or "
    "directory\n",
    "network": "curl: (6) Could not resolve host: a.example\nTemporary failure resolving 'x'\n",
    "read-only": "error: builder failed: read-only file system: '/store/x'\n",
    "settings": "CUDA_VISIBLE_DEVICES=0,1 torchrun train.py\ncudnn.benchmark = True\nUsing a slow "
    "image processor\nconv1 loss 0.5\ntorch.backends.cudnn.deterministic = True\n",
    "shell": "$ getenforce\nEnforcing\n$ sudo apt-get install libcudnn9-cuda-12\nSetting up ...\n"
    "00:02.0 VGA compatible controller: Intel Corporation UHD\nE. Process\n",
    "rpm": "  - package vim-9.1-1.fc39 requires vim-common = 9.1, but none of the providers can be "
    "installed\nError: Unable to correct problems, you have held broken packages.\n",
    "python": 'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: nan\n',
}


@pytest.mark.parametrize("name", CLEAN)
def test_clean_and_unrelated_logs_give_no_diagnosis(name: str) -> None:
    assert explain_text(CLEAN[name]).diagnoses == ()


def test_order_of_cause_and_consequence() -> None:
    """The first cause is the diagnosis; the status after it is named as a consequence."""
    log = (
        "Could not load library libcudnn_cnn_infer.so.8. Error: libnvrtc.so.11.2: cannot open "
        "shared object file: No such file or directory\nRuntimeError: cuDNN error: "
        "CUDNN_STATUS_NOT_INITIALIZED\n"
    )
    first = explain_text(log).diagnoses[0]
    assert first.id == "libnvrtc-missing"
    assert [e.line for e in first.consequences] == [2]
    assert all(0 <= d.confidence <= 1 for d in explain_text(log).diagnoses)


def test_noise_is_told_apart_from_the_fault() -> None:
    log = (
        "E cuda_dnn.cc:1] Unable to register cuDNN factory: Attempting to register factory for "
        "plugin cuDNN when one has already been registered\n"
        "Failed to initialize NVML: Driver/library version mismatch\n"
    )
    explanation = explain_text(log)
    assert explanation.diagnoses[0].id == "driver-user-kernel-mismatch"
    assert [e.line for e in explanation.noise] == [1]


def test_line_numbers_count_from_one_across_blocks() -> None:
    filler = b"nothing of interest here, really nothing at all\n" * 20_000
    log = filler + b"Failed to initialize NVML: Driver/library version mismatch\n" + filler
    (first, *_) = explain(io.BytesIO(log)).diagnoses
    assert first.evidence[0].line == 20_001


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400) | st.text(max_size=400).map(lambda s: s.encode("utf-16")))
def test_any_bytes_are_explained(data: bytes) -> None:
    explain(io.BytesIO(data))
    explain(io.BytesIO(b"libcudnn.so.9: " + data + b"CUDNN_STATUS_" + data))


def _log(size: int, line: str) -> bytes:
    lines, total, number = [], 0, 0
    while total < size:
        lines.append(line.format(n=number, word="".join(chr(97 + int(d)) for d in str(number))))
        total += len(lines[-1]) + 1
        number += 1
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    "line",
    [
        "step {n} loss 0.{n} torch.cuda.memory {n} MB cudnn.benchmark=True conv2d.{n}",
        "{n}: symbol=_ZN5{word}; lookup in file=/usr/lib/libtorch_cuda.so [0]",
    ],
)
def test_a_megabyte_is_quick(line: str) -> None:
    """The bar is half a second; CPU time, with room for a busy machine."""
    data = _log(1 << 20, line)
    explain_text("warm up")
    start = time.process_time()
    explain(io.BytesIO(data))
    assert time.process_time() - start < 1.0


def test_memory_is_bounded() -> None:
    class Endless(io.RawIOBase):
        left = 24 << 20
        piece = _log(1 << 20, "epoch {n} {word} CUDNN_STATUS_INTERNAL_ERROR libcudnn.so.9")

        def read(self, size: int = -1) -> bytes:
            if self.left <= 0:
                return b""
            self.left -= size
            return self.piece[:size]

    tracemalloc.start()
    explain(Endless())  # type: ignore[arg-type]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 48 << 20
