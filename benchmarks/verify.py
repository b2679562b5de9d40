"""`verify` beside the same work through PyTorch, in one run on one GPU.

Usage: python benchmarks/verify.py [--json] [--lib DIR]

Start to verdict (best of three) beside PyTorch's import and first convolution, and for each large
convolution of rung 6 the rate that cuDNN and PyTorch reach, each against its own GEMM.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

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
TYPES = {"bf16": torch.bfloat16, "fp16": torch.half, "tf32": torch.float, "fp32": torch.float}
def rate(f, flop):
    a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    f(); a.record(); f(); b.record(); torch.cuda.synchronize()
    count = max(3, int(150 / a.elapsed_time(b)))
    for _ in range(count // 3): f()
    a.record()
    for _ in range(count): f()
    b.record(); torch.cuda.synchronize()
    return flop * count / a.elapsed_time(b) / 1e9
rates = {}
for name, kind, x, w in SHAPES:
    tf32 = kind == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    made = dict(device="cuda", dtype=TYPES[kind])
    flop = 2 * x[0] * x[2] * x[3] * w[0] * w[1] * w[2] * w[3]
    x = torch.randn(*x, **made).to(memory_format=torch.channels_last)
    w = torch.randn(*w, **made).to(memory_format=torch.channels_last)
    a, b = torch.randn(8192, 8192, **made), torch.randn(8192, 8192, **made)
    conv = rate(lambda: torch.nn.functional.conv2d(x, w, padding=1), flop)
    gemm = rate(lambda: a @ b, 2 * 8192**3)
    rates[name] = {"tflops": conv, "gemm_tflops": gemm, "ratio": conv / gemm}
print(json.dumps({"import_s": t1 - t0, "first_convolution_s": t2 - t1, "rates": rates}))
"""


def timed(command: list[str]) -> tuple[float, str]:
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return time.perf_counter() - start, done.stdout or done.stderr


def shapes() -> list[tuple[str, str, tuple[int, ...], tuple[int, ...]]]:
    """Name, type and dimensions of what the default level measures."""
    from cudnn_doctor.verify.workloads import SPEED

    return [
        (f"{s.name} {kind}", kind, s.x, s.w) for s in SPEED for kind in s.types if kind != "fp16"
    ]


def measure(lib: str | None) -> dict[str, Any]:
    command = [sys.executable, "-m", "cudnn_doctor", "verify", "--seed", "1", "--json"]
    command += ["--lib", lib] if lib else ["--framework", "torch"]
    quick = [timed([*command, "--quick"])[0] for _ in range(3)]
    whole, text = timed(command)
    torch = json.loads(timed([sys.executable, "-c", f"SHAPES = {shapes()!r}\n{TORCH}"])[1])
    rates = {}
    for verdict in json.loads(text)["verdicts"]:
        for step in verdict["steps"]:
            data = step.get("data", {})
            theirs = torch["rates"].get(step["step"])
            if step["rung"] == "speed" and "tflops" in data and theirs:
                over = data["tflops"] / theirs["tflops"]
                rates[step["step"]] = {"verify": data, "torch": theirs, "verify_over_torch": over}
    start = torch["import_s"] + torch["first_convolution_s"]
    return {
        "quick_s": [round(seconds, 3) for seconds in quick],
        "default_s": round(whole, 3),
        "torch_import_s": torch["import_s"],
        "torch_first_convolution_s": torch["first_convolution_s"],
        "torch_start_over_quick": start / min(quick),
        "rates": rates,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lib")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result = measure(arguments.lib)
    if arguments.json:
        print(json.dumps(result))
        return
    import_s, first_s = result["torch_import_s"], result["torch_first_convolution_s"]
    print(f"verify --quick   {min(result['quick_s']):6.2f} s   verify {result['default_s']:6.2f} s")
    print(f"PyTorch          {import_s:6.2f} s to import, {first_s:.2f} s to its first convolution")
    for name, pair in result["rates"].items():
        for who in ("verify", "torch"):
            rate = pair[who]
            print(f"{name:28} {who:8} {rate['tflops']:7.1f} TFLOP/s  {rate['ratio']:6.1%} of GEMM")


if __name__ == "__main__":
    sys.path.insert(0, __file__.rpartition("/benchmarks/")[0] or ".")
    main()
