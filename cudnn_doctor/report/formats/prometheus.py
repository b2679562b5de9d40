"""Metrics in Prometheus' text format, for the textfile collector of node_exporter."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from cudnn_doctor import __version__
from cudnn_doctor.report.outcomes import Run

Sample = tuple[dict[str, str], float]
_VERDICTS = ("healthy", "warnings", "problems", "cannot-tell")


def render(run: Run) -> str:
    """All metrics (gauges), each with its help."""
    families = _verification(run) if run.command == "verify" else _check(run)
    lines: list[str] = []
    for name, about, samples in families:
        found = list(samples)
        if found:
            full = f"cudnn_doctor_{name}"
            lines += [f"# HELP {full} {about}", f"# TYPE {full} gauge"]
            lines += [f"{full}{_labels(labels)} {value:.15g}" for labels, value in found]
    return "\n".join(lines) + "\n"


def _check(run: Run) -> Iterable[tuple[str, str, Iterable[Sample]]]:
    findings = Counter(
        (o.id, o.severity or "") for o in run.outcomes if o.severity and not o.suppressed
    )
    rules = Counter(result.status for result in run.report.results)
    yield "info", "Version of cudnn-doctor.", [({"version": __version__}, 1)]
    yield (
        "verdict",
        "1 for the verdict of the last check.",
        [({"verdict": verdict}, float(verdict == run.verdict)) for verdict in _VERDICTS],
    )
    yield "exit_code", "Exit code of the last check.", [({}, run.exit_code)]
    yield (
        "findings",
        "Findings by id and severity.",
        [({"id": name, "severity": s}, count) for (name, s), count in sorted(findings.items())],
    )
    yield (
        "rules",
        "Rules by outcome.",
        [({"status": s}, rules[s]) for s in ("pass", "warn", "fail", "skip", "crash")],
    )
    if run.machine.gpus is not None:
        yield "gpus", "GPUs that the driver tells of.", [({}, len(run.machine.gpus))]
    loads = {
        (x.framework, x.version, x.environment, x.cudnn or "", x.folder or "")
        for x in run.report.loads
    }
    names = ("framework", "version", "environment", "cudnn", "folder")
    yield (
        "framework_info",
        "The cuDNN that each framework gets.",
        [(dict(zip(names, load, strict=True)), 1) for load in sorted(loads)],
    )
    yield "last_run_timestamp_seconds", "When the facts were taken.", _taken(run.machine.taken)


def _taken(text: str) -> Iterable[Sample]:
    """Nothing where a snapshot does not tell."""
    with contextlib.suppress(ValueError):
        yield {}, datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _verification(run: Run) -> Iterable[tuple[str, str, Iterable[Sample]]]:
    yield "verify_exit_code", "Exit code of the last verification.", [({}, run.exit_code)]
    rungs: dict[tuple[str, str, str, str], float] = {}
    ratios: dict[tuple[str, str, str, str], float] = {}
    for verdict in run.verdicts:
        copy = (verdict.copy.version or "", verdict.copy.folder, verdict.gpu)
        for rung in verdict.rungs:
            key = (*copy, rung.name)
            if rung.status != "skip":
                rungs[key] = float(rung.status == "pass")
        for step in verdict.steps:
            key = (*copy, step.step)
            if step.rung == "speed" and "ratio" in step.data:
                ratios[key] = float(step.data["ratio"])
    yield (
        "verify_passed",
        "1 for a rung that passed, 0 for one that failed; absent when it was not run.",
        [(_named(key, "rung"), value) for key, value in rungs.items()],
    )
    yield (
        "verify_rate_ratio",
        "Rate of cuDNN's work as a share of the GPU's own ceiling measured beside it.",
        [(_named(key, "step"), value) for key, value in ratios.items()],
    )


def _named(key: tuple[str, str, str, str], last: str) -> dict[str, str]:
    return dict(zip(("cudnn", "folder", "gpu", last), key, strict=True))


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
