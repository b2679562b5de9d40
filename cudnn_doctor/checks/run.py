"""Run all rules over one machine and put their results in order."""

from __future__ import annotations

import time

from cudnn_doctor.checks.causes import link_causes
from cudnn_doctor.checks.context import Context, Options
from cudnn_doctor.checks.got import all_got
from cudnn_doctor.checks.model import CheckResult, Finding, FrameworkLoad, Report, Status
from cudnn_doctor.checks.registry import Rule, Skip, all_rules
from cudnn_doctor.machine.loads import LoadPlan
from cudnn_doctor.machine.model import Machine
from cudnn_doctor.matrix.model import Matrix


def run_checks(
    machine: Machine,
    matrix: Matrix,
    options: Options | None = None,
    *,
    plans: tuple[LoadPlan, ...] | None = None,
) -> Report:
    """Judge a machine. Never raises for what a rule does: a crash becomes a result.

    ``plans`` replaces the loader simulation, for a caller who has run it already.
    """
    context = Context(machine, matrix, options, plans)
    start = time.perf_counter()
    results = [_run(declared, context) for declared in all_rules() if _chosen(declared, context)]
    linked = link_causes(tuple(results))
    seconds = round(time.perf_counter() - start, 6)
    return Report(results=linked, loads=_loads(context), seconds=seconds)


def _loads(context: Context) -> tuple[FrameworkLoad, ...]:
    """The table of what each framework gets; empty where the simulation failed (a rule says so)."""
    try:
        found = all_got(context)
    except Exception:
        return ()
    return tuple(
        FrameworkLoad(
            framework=got.framework.name,
            version=got.framework.version,
            environment=got.framework.environment,
            cudnn=got.version,
            mixed_with=got.other_versions,
            folder=got.folder,
            because=got.plan.shim.because if got.plan and got.plan.shim else "",
            certain=got.known and not context.machine.partial,
        )
        for got in found
    )


def _chosen(declared: Rule, context: Context) -> bool:
    only, skip = context.options.only, context.options.skip
    wanted = not only or any(id in only for id in (*declared.ids, declared.category))
    return wanted and not any(id in skip for id in (declared.id, declared.category))


def _run(declared: Rule, context: Context) -> CheckResult:
    status: Status
    findings: tuple[Finding, ...] = ()
    reason = ""
    if declared.gpu and context.options.no_gpu:
        status, reason = "skip", "no GPU is meant to be here (--no-gpu)"
    else:
        try:
            findings = tuple(declared.function(context))
            status = _status(findings)
        except Skip as skip:
            status, reason = "skip", str(skip)
        except Exception as error:  # a bug in one rule must not hide what the others see
            status, reason = "crash", f"{type(error).__name__}: {error}"
    return CheckResult(
        rule=declared.id,
        category=declared.category,
        status=status,
        findings=findings,
        reason=reason,
    )


def _status(findings: tuple[Finding, ...]) -> Status:
    severities = {finding.severity for finding in findings}
    if "error" in severities:
        return "fail"
    return "warn" if "warning" in severities else "pass"
