"""`verify --quick` beside the same first work through PyTorch, in one run on one GPU.

Usage: python benchmarks/verify.py [--json] [--lib DIR]

Prints seconds from start to verdict (best of three), PyTorch's import and first convolution, and
the rates of the bf16 3x3 convolution of 256x256x56x56 that both reach.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

TORCH = """
import json, time
t0 = time.perf_counter()
import torch
t1 = time.perf_counter()
x = torch.randn(2, 64, 28, 28, device="cuda", dtype=torch.half)
w = torch.randn(64, 64, 3, 3, device="cuda", dtype=torch.half)
torch.nn.functional.conv2d(x, w, padding=1); torch.cuda.synchronize()
t2 = time.perf_counter()
torch.backends.cudnn.benchmark = True
big = dict(device="cuda", dtype=torch.bfloat16)
x = torch.randn(256, 256, 56, 56, **big).to(memory_format=torch.channels_last)
w = torch.randn(256, 256, 3, 3, **big).to(memory_format=torch.channels_last)
def rate(f, flop):
    for _ in range(30): f()
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a.record()
    for _ in range(100): f()
    b.record(); torch.cuda.synchronize()
    return flop * 100 / a.elapsed_time(b) / 1e9
a, b = torch.randn(8192, 8192, **big), torch.randn(8192, 8192, **big)
conv = rate(lambda: torch.nn.functional.conv2d(x, w, padding=1), 2 * 256 * 256 * 56 * 56 * 256 * 9)
gemm = rate(lambda: a @ b, 2 * 8192**3)
print(json.dumps({"import_s": t1 - t0, "first_convolution_s": t2 - t1, "conv_tflops": conv,
                  "gemm_tflops": gemm, "ratio": conv / gemm}))
"""


def timed(command: list[str]) -> tuple[float, str]:
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return time.perf_counter() - start, done.stdout or done.stderr


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lib")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    command = [sys.executable, "-m", "cudnn_doctor", "verify", "--seed", "1", "--json"]
    command += ["--lib", arguments.lib] if arguments.lib else ["--framework", "torch"]
    quick = [timed([*command, "--quick"]) for _ in range(3)]
    whole, text = timed(command)
    rates = {
        step["step"]: step["data"]
        for verdict in json.loads(text)["verdicts"]
        for step in verdict["steps"]
        if step["rung"] == "speed" and "ratio" in step.get("data", {})
    }
    result = {
        "quick_s": [round(seconds, 3) for seconds, _ in quick],
        "default_s": round(whole, 3),
        "rates": rates,
        "torch": json.loads(timed([sys.executable, "-c", TORCH])[1]),
    }
    print(json.dumps(result, indent=None if arguments.json else 2))


if __name__ == "__main__":
    main()
