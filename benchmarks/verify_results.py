"""Write what GPU sessions gave (gpu_session.py) into benchmarks/results: tables and reports.

Usage: python benchmarks/verify_results.py DATE FOLDER [FOLDER...]

FOLDERs hold the steps' .out files; where two have the same step, the later one counts. Writes
verify_h200_DATE.md, and verify_h200_DATE_COPY.json for each copy: the whole report without the
paths and the GPU's id of the machine on which it was made.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
GROUPS = re.compile(r"(?:healthy-|rest-|gpus-|last-)(?=[a-z])")
PATHS = (
    (re.compile(r"/[\w/.-]*?/site-packages/"), "SITE/"),
    (re.compile(r"/tmp/cudnn-doctor-session/"), "SCRATCH/"),
    (re.compile(r"/tmp/[\w/.-]*?/(?=nvidia/)"), "THIRD/"),
    (re.compile(r"GPU-[0-9a-f-]{36}"), "GPU-0"),
)
NOTES = "\n## Notes\n"
"""Written by hand, and kept."""
COPIES = ("distro", "wheel", "third")


def gather(folders: list[Path]) -> dict[str, Any]:
    """Step -> its JSON, or its text."""
    found: dict[str, Any] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.out")):
            text = path.read_text(errors="replace")
            for pattern, put in PATHS:
                text = pattern.sub(put, text)
            try:
                found[GROUPS.sub("", path.stem, count=1)] = json.loads(text)
            except ValueError:
                found[GROUPS.sub("", path.stem, count=1)] = text
    return found


def verdict(found: dict[str, Any], name: str) -> dict[str, Any]:
    """The first verdict of a step; empty where it gave none."""
    document = found.get(name)
    listed = document.get("verdicts") if isinstance(document, dict) else None
    return listed[0] if listed else {}


def said(one: dict[str, Any]) -> str:
    if one.get("failed"):
        return "failed"
    has = [k["issue"] for k in one.get("known", ()) if k["listed"] and k["found"] == "has"]
    return f"passed; has {', '.join(has)}" if has else "passed"


def copies(found: dict[str, Any]) -> Iterator[str]:
    yield "| copy | cuDNN | level | seconds | verdict | steps passed, not run | libraries used |"
    yield "|---|---|---|---|---|---|---|"
    for name, level, key in (
        *((copy, level, f"{level}-{copy}") for copy in COPIES for level in ("quick", "default")),
        ("wheel", "full", "full-wheel"),
        ("third", "full", "full-third"),
        ("wheel", "default, references by CuPy", "cupy-wheel"),
        ("wheel", "quick, no NumPy", "plain-wheel"),
    ):
        if one := verdict(found, key):
            count = [sum(s["status"] == state for s in one["steps"]) for state in ("pass", "skip")]
            used = len(one["facts"].get("used", ()))
            copy = one["copy"]
            yield (
                f"| {name} | {copy['version']} | {level} | {one['seconds']:.1f} | {said(one)} "
                f"| {count[0]}, {count[1]} | {used} of {len(copy['libraries'])} |"
            )


def used(found: dict[str, Any]) -> Iterator[str]:
    for name in COPIES:
        if one := verdict(found, f"default-{name}"):
            version = one["copy"]["version"]
            yield f"cuDNN {version} ({name}), each library and the step that first used it:\n"
            for path, step in sorted(one["facts"]["used"].items()):
                yield f"- `{path.rpartition('/')[2]}`: {step}"
            stems = {p.rpartition("/")[2].partition(".so")[0] for p in one["facts"]["used"]}
            idle = [n for n in one["copy"]["libraries"] if n.partition(".so")[0] not in stems]
            yield f"\nNot used: {', '.join(idle) or 'none'}.\n"


def rates(found: dict[str, Any]) -> Iterator[str]:
    yield "| cuDNN | work | rate | reference | ratio | engine | SM clock, MHz | W | degrees C |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name in COPIES:
        one = verdict(found, f"default-{name}")
        for step in (s for s in one.get("steps", ()) if s["rung"] == "speed"):
            data = step.get("data", {})
            if "ratio" not in data:
                continue
            if "tflops" in data:
                pair = f"{data['tflops']} TFLOP/s | {data['gemm_tflops']} (GEMM)"
            else:
                pair = f"{data['relu_gbs']:.0f} GB/s | {data['copy_gbs']:.0f} (copy)"
            gpu = data["gpu"]
            clock, watt, heat = (
                f"{gpu[key]['min'] / scale:.0f}-{gpu[key]['max'] / scale:.0f}"
                for key, scale in (("sm_mhz", 1), ("milliwatt", 1000), ("celsius", 1))
            )
            yield (
                f"| {one['copy']['version']} | {step['step']} | {pair} | {data['ratio']:.1%} "
                f"| {data.get('engine', 'ReLU')} | {clock} | {watt} | {heat} |"
            )


def errors(found: dict[str, Any]) -> Iterator[str]:
    yield (
        "| cuDNN | checked results | elements | largest error, of its bound | not repeatable "
        "| 16-bit partial sums |"
    )
    yield "|---|---|---|---|---|---|"
    for name in COPIES:
        if one := verdict(found, f"default-{name}"):
            checked = [s for s in one["steps"] if "worst" in s.get("data", {})]
            worst = max(checked, key=lambda s: s["data"]["worst"])
            yield (
                f"| {one['copy']['version']} | {len(checked)} "
                f"| {sum(s['data'].get('elements', 0) for s in checked)} "
                f"| {worst['data']['worst']:.3f} ({worst['step']}) "
                f"| {sum(s['data'].get('repeatable') is False for s in checked)} "
                f"| {sum('reduced' in s['data'] for s in checked)} |"
            )


def known(found: dict[str, Any]) -> Iterator[str]:
    yield "| cuDNN | known fault | listed for the release | found | said |"
    yield "|---|---|---|---|---|"
    for name in COPIES:
        one = verdict(found, f"default-{name}")
        for fault in one.get("known", ()):
            listed = "yes" if fault["listed"] else "no"
            version = one["copy"]["version"]
            told = f"{fault['found']} | {fault.get('why', '')}"
            yield f"| {version} | {fault['issue']} | {listed} | {told} |"


def faults(found: dict[str, Any]) -> Iterator[str]:
    yield "| fault | verdict | rungs that failed, and the cause named |"
    yield "|---|---|---|"
    for key in sorted(k for k in found if k.startswith("faults-")):
        if one := verdict(found, key):
            why = [f"{r['name']}: {cut(r['why'])}" for r in one["rungs"] if r["status"] == "fail"]
            yield f"| {key.removeprefix('faults-')} | {said(one)} | {'<br>'.join(why)} |"


def side_by_side(found: dict[str, Any]) -> Iterator[str]:
    yield "| step | GPU | seconds | verdict | bf16 convolution |"
    yield "|---|---|---|---|---|"
    for key in sorted(k for k in found if k.startswith("all-gpus") and verdict(found, k)):
        for number, one in enumerate(found[key]["verdicts"]):
            rates = [s["data"]["tflops"] for s in one["steps"] if "tflops" in s.get("data", {})]
            rate = f"{rates[0]:.0f} TFLOP/s" if rates else "not run"
            yield (
                f"| {key} | {number}, {one['gpu']} | {one['seconds']:.1f} | {said(one)} | {rate} |"
            )


def cut(text: str) -> str:
    return (text if len(text) < 220 else text[:217] + "...").replace("|", "\\|")


def torch(found: dict[str, Any]) -> Iterator[str]:
    made = found.get("benchmark")
    if not isinstance(made, dict):
        return
    start = made["torch_import_s"] + made["torch_first_convolution_s"]
    quick = min(made["quick_s"])
    yield (
        f"`verify --quick`, start to verdict: {quick:.2f} s (best of {len(made['quick_s'])}); "
        f"PyTorch: {made['torch_import_s']:.2f} s to be imported and "
        f"{made['torch_first_convolution_s']:.2f} s more for its first convolution, together "
        f"{start / quick:.1f} times as long. `verify`: {made['default_s']:.1f} s.\n"
    )
    yield "| work | verify, TFLOP/s | of GEMM | PyTorch, TFLOP/s | of GEMM | verify / PyTorch |"
    yield "|---|---|---|---|---|---|"
    for name, pair in made["rates"].items():
        mine, its = pair["verify"], pair["torch"]
        yield (
            f"| {name} | {mine['tflops']:.1f} | {mine['ratio']:.1%} | {its['tflops']:.1f} "
            f"| {its['ratio']:.1%} | {pair['verify_over_torch']:.3f} |"
        )


SECTIONS = (
    ("Copies", copies), ("Every library used", used), ("Rates", rates), ("Errors", errors),
    ("Known wrong results", known), ("Beside PyTorch, in one run", torch),
    ("All GPUs side by side", side_by_side), ("Faults made on purpose", faults),
)  # fmt: skip


def main() -> None:
    date, folders = sys.argv[1], [Path(name) for name in sys.argv[2:]]
    found = gather(folders)
    name = f"verify_h200_{date}"
    lines = [f"# `verify` on an H200, {date}", "", "Made by `benchmarks/gpu_session.py`."]
    for title, section in SECTIONS:
        lines += ["", f"## {title}", "", *section(found)]
    page = RESULTS / f"{name}.md"
    notes = page.read_text().partition(NOTES)[2] if page.exists() else ""
    page.write_text("\n".join(lines) + "\n" + (NOTES + notes if notes else ""))
    for copy in COPIES:
        if f"default-{copy}" in found:
            for one in found[f"default-{copy}"]["verdicts"]:
                one["copy"].pop("cublas", None)
            text = json.dumps(found[f"default-{copy}"], separators=(",", ":"))
            (RESULTS / f"{name}_{copy}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
