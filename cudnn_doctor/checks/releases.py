"""Rules made of the matrix's known issues: releases that compute wrongly, fail or are slow."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from cudnn_doctor.checks.context import Context, matches
from cudnn_doctor.checks.got import all_got
from cudnn_doctor.checks.model import Evidence, Finding, Remedy, Severity
from cudnn_doctor.checks.registry import rule
from cudnn_doctor.matrix import query
from cudnn_doctor.matrix.model import Issue

_BY_KIND = {
    "wrong-results": "cudnn-version-wrong-results",
    "regression": "cudnn-version-regression",
    "performance": "cudnn-version-performance",
    "crash": "cudnn-version-regression",
    "other": "cudnn-version-regression",
}
_IDS = tuple(dict.fromkeys(_BY_KIND.values()))


@rule(_IDS[0], "frameworks", also=(*_IDS[1:], "known-nondeterminism"))
def known_issues(context: Context) -> Iterator[Finding]:
    """The cuDNN in use has a known fault that concerns this GPU and framework.

    A note, since the fault meets only some operations; a warning where the matrix says that the
    release is to be avoided, or names this very release of the framework. Nothing is said where
    the range of releases is only inferred: most of them may be sound.
    """
    reported: set[tuple[str, str]] = set()
    for got in all_got(context):
        if not got.version:
            continue
        release = ".".join(got.version.split(".")[:3])
        for issue in query.issues_for(context.matrix, got.version, got.framework.cuda):
            id = issue.diagnosis or _BY_KIND.get(issue.kind, "")
            if id not in (*_IDS, "known-nondeterminism"):
                continue
            if query.how(context.matrix, issue, "affects") == "inferred":
                continue
            if (issue.id, release) in reported or not _concerns(context, issue, got.label):
                continue
            reported.add((issue.id, release))
            yield _finding(issue, id, got.label, got.subject, release)


def _concerns(context: Context, issue: Issue, user: str) -> bool:
    """Whether an issue is about this machine's GPUs and about this framework."""
    present = {gpu.compute_capability for gpu in context.machine.gpus or ()} - {None}
    if issue.cc and present and not present & set(issue.cc):
        return False
    if not issue.packages:
        return True
    name, _, version = user.partition(" ")
    return any(_names(package, name, version) for package in issue.packages)


def _names(package: str, name: str, version: str) -> bool:
    """Whether ``torch>=2.9,<2.10`` (or ``torch``) means this framework."""
    start = next((i for i, char in enumerate(package) if char in "<>=!~"), len(package))
    stem, specifier = package[:start].strip(), package[start:]
    return stem == name and (not specifier or matches(version, specifier))


def _finding(issue: Issue, id: str, user: str, subject: str, release: str) -> Finding:
    named = any(char in package for package in issue.packages for char in "=<>~")
    severity: Severity = "warning" if issue.avoid or named else "info"
    fixed = f"fixed in {issue.fixed_in}" if issue.fixed_in else "no fixed release is known"
    found: list[Remedy] = []
    if issue.fixed_in:
        command = f"cudnn-doctor install --version '>={issue.fixed_in}'"
        found.append(Remedy(title=f"use cuDNN {issue.fixed_in} or newer", commands=(command,)))
    if issue.workaround:
        found.append(Remedy(title=issue.workaround))
    return Finding(
        id=id,
        severity=severity,
        title=textwrap.shorten(f"cuDNN {release}: {issue.title}", 99),
        culprit=f"cuDNN {release}",
        subject=subject,
        seen=(
            Evidence(what=f"{user} gets cuDNN {release}", where=subject),
            Evidence(
                what=f"{issue.id}: affects {issue.affects}, {fixed}", how="compat_matrix.yaml"
            ),
        ),
        why=issue.note or "a known fault of that release.",
        remedies=tuple(found),
    )
