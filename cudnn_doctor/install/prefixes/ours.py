"""Whose is what stands in a prefix. What another put there is neither replaced nor removed.

Receipts cannot tell it, for several users may share a prefix: a place is known by its form, and
what lies in a version's folder by the manifest.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from cudnn_doctor.errors import DoctorError, NothingChanged
from cudnn_doctor.install import manifest
from cudnn_doctor.install.plan import AnyStep, Plan, RemoveTree, SwitchLink, WriteFile
from cudnn_doctor.install.prefixes import layout

Whose = Literal["nobody's", "ours", "edited", "another's"]
_SHOWN = 5


def settled(plan: Plan) -> Plan:
    """A prefix's plan, so that it leaves alone what is another's and says what else it finds.

    Raises DoctorError (NOTHING_CHANGED) where that cannot be.
    """
    steps: list[AnyStep] = []
    warnings = [*plan.warnings, *_open_to_all(plan.target)]
    for step in plan.steps:
        if isinstance(step, WriteFile | SwitchLink):
            warnings += _replaced(step.path, plan.target)
        elif isinstance(step, RemoveTree):
            left, told = _removed(step, plan)
            steps += left
            warnings += told
            continue
        steps.append(step)
    told_once = tuple(dict.fromkeys(warnings))
    return msgspec.structs.replace(plan, steps=tuple(steps), warnings=told_once)


def edited(path: str) -> str:
    """What is said where something of ours is not what this tool made of it."""
    return f"{path} was changed since; what is there now goes into this change's receipt"


def check_removal(folder: str) -> None:
    """Raise DoctorError (NOTHING_CHANGED) where a folder holds files that others put there."""
    names = manifest.strangers(Path(folder))
    if names:
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise _refused(
            f"files that are not this tool's lie in it: {', '.join(names[:_SHOWN])}{more}", folder
        )


def _replaced(path: str, prefix: str) -> Iterator[str]:
    if _leads_away(path, prefix):
        raise _refused("a link in this path leads out of the prefix", path)
    whose = _whose(path, prefix)
    if whose == "another's":
        raise _refused("something that is not this tool's is there, and it is not replaced", path)
    if whose == "edited":
        yield edited(path)


def _open_to_all(prefix: str) -> Iterator[str]:
    if os.geteuid() == 0 and os.path.isdir(prefix) and os.stat(prefix).st_mode & stat.S_IWOTH:
        yield f"everybody may write into {prefix}, and replace what root puts there"


def _removed(step: RemoveTree, plan: Plan) -> tuple[list[AnyStep], list[str]]:
    """The step, if it is one, and what is to be said. Edited files are never deleted at once."""
    whose = _whose(step.path, plan.target)
    if whose == "another's" or _leads_away(step.path, plan.target):
        return [], [f"{step.path} is not this tool's: it stays"]
    is_folder = os.path.isdir(step.path) and not os.path.islink(step.path)
    if not is_folder or plan.action == "repair":
        return [step], [edited(step.path)] if whose == "edited" else []
    damage = manifest.damage(Path(step.path)) or []
    changed = [line for line in damage if not line.endswith(" is missing")]
    kept = msgspec.structs.replace(step, keep=step.keep or bool(changed))
    return [kept], [f"{step.path}: {line}; it is set aside as it is" for line in changed]


def _refused(what: str, where: str) -> DoctorError:
    return NothingChanged(
        what,
        where=where,
        next_step="move it away, then run this again; or give another --prefix",
    )


def _leads_away(path: str, prefix: str) -> bool:
    folder = os.path.dirname(path)
    inside = f"{folder}/".startswith(f"{prefix}/")
    real = os.path.join(os.path.realpath(prefix), os.path.relpath(folder, prefix))
    return inside and os.path.realpath(folder) != os.path.normpath(real)


def _whose(path: str, prefix: str) -> Whose:
    if not os.path.lexists(path):
        return "nobody's"
    name = os.path.relpath(path, prefix)
    if name in layout.LINKS:
        target = os.readlink(path) if os.path.islink(path) else ""
        return "ours" if layout.LINKS[name].fullmatch(target) else "another's"
    if os.path.islink(path):
        return "another's"
    if texts := layout.texts_at(path, prefix):
        return _whose_text(path, texts)
    if not os.path.isdir(path):
        return "another's"
    check_removal(path)
    return "ours"


def _whose_text(path: str, texts: tuple[str, ...]) -> Whose:
    if not os.path.isfile(path):
        return "another's"
    there = Path(path).read_bytes()
    if there in [text.encode() for text in texts]:
        return "ours"
    marks = tuple(layout.mark_of(text).encode() for text in texts)
    return "edited" if there.startswith(marks) else "another's"
