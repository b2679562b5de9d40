"""Plans as a task file of Ansible: a block that is skipped where this cuDNN is there already."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml

from cudnn_doctor.install.plan import (
    AnyStep,
    MakeFolder,
    MoveTree,
    Plan,
    RemoveTree,
    SwitchLink,
    WriteFile,
)
from cudnn_doctor.report.recipe import notes, step_commands

_SCRATCH = "{{ cudnn_scratch.path }}"


def to_ansible(plan: Plan) -> str:
    """The tasks; include them with ``ansible.builtin.include_tasks``. Hosts need curl, tar, xz."""
    placed = [step.target for step in plan.steps if isinstance(step, MoveTree)]
    tasks: list[dict[str, Any]] = []
    block: dict[str, Any] = {
        "name": f"{plan.action} cuDNN {plan.version} for CUDA {plan.cuda} ({plan.method})",
        "block": [
            {
                "name": "make a scratch folder",
                "ansible.builtin.tempfile": {"state": "directory", "prefix": "cudnn."},
                "register": "cudnn_scratch",
            },
            *(_task(step) for step in plan.steps),
        ],
        "always": [
            {
                "name": "remove the scratch folder",
                "ansible.builtin.file": {"path": _SCRATCH, "state": "absent"},
                "when": "cudnn_scratch.path is defined",
            }
        ],
    }
    if placed:
        seen = {"ansible.builtin.stat": {"path": _literal(placed[-1])}, "register": "cudnn_there"}
        tasks.append({"name": "look for it", **seen})
        block["when"] = "not cudnn_there.stat.exists"
    tasks.append(block)
    text: str = yaml.dump(tasks, Dumper=_Dumper, sort_keys=False, width=1000)
    return "\n".join([*notes(plan), "---", text.rstrip("\n")])


class _Dumper(yaml.SafeDumper):
    """Texts of several lines are written as they are."""


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)


_Dumper.add_representer(str, _text)


def _task(step: AnyStep) -> dict[str, Any]:
    title = step.title or type(step).__name__
    task: dict[str, Any] = {"name": _literal(title)}
    task |= _MODULES[type(step)](step) if type(step) in _MODULES else _script(step)
    if step.needs_root:
        task["become"] = True
    return task


def _script(step: AnyStep) -> dict[str, Any]:
    script = "\n".join(["set -eu", *step_commands(step)])
    return {"ansible.builtin.shell": {"cmd": _literal(script), "chdir": _SCRATCH}}


def _file(**options: Any) -> dict[str, Any]:
    return {"ansible.builtin.file": {k: _literal(v) for k, v in options.items()}}


def _written(step: WriteFile) -> dict[str, Any]:
    told = {"dest": _literal(step.path), "content": _literal(step.content)}
    return {"ansible.builtin.copy": {**told, "mode": f"{step.mode:04o}"}}


def _literal(value: Any) -> Any:
    """Text that Jinja leaves as it is: no brace is left that could begin something."""
    return re.sub(r"\{(?=[{%#])", "{{ '{' }}", value) if isinstance(value, str) else value


_MODULES: dict[type[Any], Callable[[Any], dict[str, Any]]] = {
    MakeFolder: lambda step: _file(path=step.path, state="directory", mode=f"{step.mode:04o}"),
    RemoveTree: lambda step: _file(path=step.path, state="absent"),
    SwitchLink: lambda step: (
        _file(path=step.path, src=step.target, state="link", force=True)
        if step.target
        else _file(path=step.path, state="absent")
    ),
    WriteFile: lambda step: _script(step) if step.raw else _written(step),
}
