"""Plans for people and programs: each format is one function, named in `FORMATS`."""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from cudnn_doctor import __version__
from cudnn_doctor.install.packages.kept import STORE
from cudnn_doctor.install.plan import (
    AnyStep,
    Fetch,
    FetchKey,
    FromIndex,
    GuardPackages,
    GuardSystem,
    Plan,
    Run,
    SwitchLink,
    Unpack,
    WriteFile,
)
from cudnn_doctor.machine.redact import hide_secrets, printable, without_secrets
from cudnn_doctor.report.ansible import to_ansible
from cudnn_doctor.report.apptainer import to_apptainer
from cudnn_doctor.report.recipe import to_dockerfile, to_shell
from cudnn_doctor.report.style import visible

SCHEMA = 1
_WIDTH = 80


def to_text(plan: Plan) -> str:
    """The plan for a terminal: all that will be changed, in order, in at most 80 columns (paths
    and commands stay whole)."""
    if plan.action == "fix":
        lines = [f"fix {plan.target}"]
    else:
        lines = [f"{plan.action} cuDNN {plan.version} for CUDA {plan.cuda}"]
        lines += [f"  method {plan.method}, in {plan.target}"]
    lines += _section("Why", plan.reasons)
    lines += _section("Mind", plan.warnings)
    lines += ["", "Steps" if plan.steps else "Nothing is to be done."]
    for number, step in enumerate(plan.steps, 1):
        root = " (as root)" if step.needs_root else ""
        lines.append(
            _fill(f"{step.title or type(step).__name__}{root}", f"{number:4d}. ", "      ")
        )
        lines += [f"      {detail}" for detail in _details(step)]
    return visible(without_secrets("\n".join(lines)))


def to_json(plan: Plan) -> str:
    """The plan as a JSON document."""
    return json.dumps(document(plan), indent=2)


def document(plan: Plan) -> dict[str, Any]:
    """The plan as JSON values, with schema and tool version, without passwords of mirrors."""
    return {
        "schema": SCHEMA,
        "tool": f"cudnn-doctor {__version__}",
        "plan": msgspec.to_builtins(hide_secrets(printable(plan))),
    }


FORMATS: dict[str, Callable[[Plan], str]] = {
    "text": to_text,
    "json": to_json,
    "shell": to_shell,
    "dockerfile": to_dockerfile,
    "apptainer": to_apptainer,
    "ansible-tasks": to_ansible,
}
"""``--format`` name -> renderer."""
FOR_IMAGES = frozenset({"dockerfile", "apptainer", "ansible-tasks"})
"""Formats that describe another machine, on which nothing is installed yet."""


def _details(step: AnyStep) -> Iterable[str]:
    """What the title does not say: the paths, addresses and commands."""
    if isinstance(step, Fetch):
        yield step.urls[0]
    elif isinstance(step, FetchKey):
        yield step.urls[0]
        yield f"fingerprint {step.fingerprint}"
        yield step.path
    elif isinstance(step, Unpack):
        size = f" ({step.source.size / 1e6:.0f} MB)" if step.source.size else ""
        yield f"{step.source.urls[0]}{size}"
        yield f"sha256 {step.source.sha256}"
    elif isinstance(step, FromIndex):
        yield shlex.join(step.argv)
        yield from step.requirement.split(" --hash=")
    elif isinstance(step, Run):
        yield shlex.join(step.argv)
    elif isinstance(step, SwitchLink) and step.target:
        yield f"{step.path} -> {step.target}"
    elif isinstance(step, WriteFile):
        yield step.path
    elif isinstance(step, GuardPackages):
        yield step.site_packages
    elif isinstance(step, GuardSystem) and step.keep:
        yield str(STORE)


def _section(title: str, items: Iterable[str]) -> list[str]:
    """Items after a title; what follows an item's first line are commands, which stay whole."""
    lines = []
    for item in items:
        said, *commands = item.splitlines()
        lines += [_fill(said, "  - ", "    "), *(f"      {command}" for command in commands)]
    return ["", title, *lines] if lines else []


def _fill(text: str, first: str, rest: str) -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
