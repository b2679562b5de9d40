"""What this tool did here, and the plans that take it back, switch, remove or mend it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from cudnn_doctor.errors import BadInput, DoctorError, ExitCode, NothingChanged
from cudnn_doctor.install import files, folders
from cudnn_doctor.install.journal import RECEIPT_ID, Journal
from cudnn_doctor.install.packages import kept
from cudnn_doctor.install.plan import (
    AnyStep,
    GuardPackages,
    MoveTree,
    Plan,
    RemoveTree,
    SwitchLink,
    WriteFile,
)
from cudnn_doctor.install.prefixes import layout, ours
from cudnn_doctor.install.state import State
from cudnn_doctor.install.wheels import guard


class Receipt(NamedTuple):
    """One plan that was carried out."""

    id: str
    folder: Path
    plan: Plan


class Installed(NamedTuple):
    """One cuDNN that this tool put somewhere."""

    name: str
    """``9.10.2-cuda12``, by which ``use`` and ``uninstall`` know it."""
    method: str
    target: str
    current: bool
    receipt: str
    """Id of the receipt, empty when another user's run put it there."""


def receipts(state: State) -> list[Receipt]:
    """All receipts that can be read, oldest first."""
    return [found for found in _read_all(state) if isinstance(found, Receipt)]


def damaged(state: State) -> list[BadInput]:
    """Why the others cannot be read; ``where`` begins with the receipt's folder."""
    return [found for found in _read_all(state) if isinstance(found, BadInput)]


def _read_all(state: State) -> Iterator[Receipt | BadInput]:
    """What else lies among the receipts is none of this tool's."""
    try:
        names = sorted(os.listdir(state.receipts)) if os.path.isdir(state.receipts) else []
    except OSError as error:
        raise files.failed("cannot list the receipts", str(state.receipts), error) from error
    for folder in (state.receipts / name for name in names if RECEIPT_ID.fullmatch(name)):
        try:
            yield Receipt(folder.name, folder, Journal.open(folder).plan)
        except BadInput as error:
            yield error


def standing(all_receipts: list[Receipt]) -> list[Receipt]:
    """Those that were not taken back, nor are themselves the taking back of one, nor were made in
    an environment that is gone."""
    undone = {receipt.plan.undoes for receipt in all_receipts}
    known = [r for r in all_receipts if not r.plan.undoes and r.id not in undone]
    return [r for r in known if not _is_gone(r.plan)]


def _is_gone(plan: Plan) -> bool:
    place = plan.target
    return plan.method == "wheel" and place.startswith("/") and not os.path.isdir(place)


def installed(state: State, prefix: str | None = None) -> list[Installed]:
    """Everything that is there: versions in prefixes, wheels and packages by their receipts."""
    known = standing(receipts(state))
    targets = [r.plan.target for r in known if r.plan.method == "tarball"]
    wanted = [prefix] if prefix else [*_usual(), layout.SYSTEM, *targets]
    found = []
    for place in dict.fromkeys(map(os.path.abspath, wanted)):
        for name in layout.versions(place):
            origin = next((r.id for r in reversed(known) if puts(r, f"{place}/{name}")), "")
            current = layout.current(place) == name
            found.append(Installed(name, "tarball", place, current, origin))
    return found if prefix else [*found, *_by_receipts(known)]


def _by_receipts(known: list[Receipt]) -> Iterable[Installed]:
    """Wheels and packages: an environment holds one cuDNN, the newest; a system one a name."""
    newest: dict[tuple[str, str], Installed] = {}
    for receipt in known:
        plan = receipt.plan
        if plan.method != "tarball" and plan.action == "install":
            release = ".".join(plan.version.split(".")[:3])
            name = layout.folder_name(release, plan.cuda)
            key = (plan.target, "" if plan.method == "wheel" else name)
            newest.pop(key, None)
            newest[key] = Installed(name, plan.method, plan.target, True, receipt.id)
    return newest.values()


def _usual() -> list[str]:
    """The prefix that is used where none is named; none for a user without a home."""
    try:
        return [layout.default()]
    except DoctorError:
        return []


def find(entries: list[Installed], wanted: str) -> Installed:
    """The entry that ``wanted`` names: ``9.10.2-cuda12`` or, where that is clear, ``9.10.2``."""
    exact = [e for e in entries if e.name == wanted]
    fitting = exact or [e for e in entries if e.name.startswith(f"{wanted}-")]
    if len(fitting) == 1:
        return fitting[0]
    listed = ", ".join(f"{e.name} ({e.target})" for e in fitting or entries) or "nothing"
    raise DoctorError(
        f"{wanted!r} is {'not clear' if fitting else 'not installed'}",
        where=f"installed: {listed}",
        next_step="name it in full, with --prefix where it is in several; see `cudnn-doctor list`",
        exit_code=ExitCode.USAGE,
    )


def plan_rollback(state: State, wanted: str | None = None) -> Plan:
    """Take back the newest change, or the one with this id if no later one builds on it."""
    known = standing(receipts(state))
    chosen = [r for r in known if wanted is None or r.id == wanted][-1:]
    for error in damaged(state):
        if not chosen or error.where > str(chosen[0].folder):
            raise error  # who knows what it built on
    if not chosen:
        gone = any(r.id == wanted for r in receipts(state))
        what = "was taken back, was a taking back, or its environment is gone" if gone else ""
        raise DoctorError(
            f"{wanted} {what or 'is no receipt'}" if wanted else "there is nothing to take back",
            where=str(state.receipts),
            next_step="see `cudnn-doctor list`; what root did is taken back with --sudo",
            exit_code=ExitCode.USAGE if wanted else ExitCode.NOTHING_CHANGED,
        )
    receipt = chosen[0]
    later = [r.id for r in known if r.id > receipt.id and r.plan.target == receipt.plan.target]
    if later:
        raise NothingChanged(
            f"a later change builds on it: {later[-1]}",
            where=receipt.plan.target,
            next_step=f"take that one back first: `cudnn-doctor rollback {later[-1]}`",
        )
    return _taken_back(receipt, "rollback")


def _taken_back(receipt: Receipt, action: str) -> Plan:
    plan = receipt.plan
    for step in plan.steps:
        if isinstance(step, RemoveTree) and step.keep and not os.path.lexists(files.aside(step)):
            raise NothingChanged(
                f"that {plan.action} removed {step.path}, which a later change or `cache clear` "
                "took for good",
                next_step=f"bring it back with `cudnn-doctor install --version {plan.version}`",
            )
        if isinstance(step, SwitchLink) and step.path == f"{plan.target}/current":
            _refuse_if_followed(step)
    staged = tuple(step.source for step in plan.steps if isinstance(step, MoveTree))
    saved = receipt.folder / "saved"
    steps = [
        back
        for number, step in reversed(list(enumerate(plan.steps)))
        for back in files.inverse(step, saved / str(number))
        if not getattr(back, "path", "").startswith(staged or "\0")
    ]
    steps = [*guard.from_kept(steps, receipt.id)]
    warnings = (*_changed_since(plan), *_replaced_since(plan))
    return _plan(plan, action, steps, warnings=warnings, undoes=receipt.id)


def _refuse_if_followed(step: SwitchLink) -> None:
    """Another user of the prefix, whose receipts are not here, may have made a version current."""
    now = os.readlink(step.path) if os.path.islink(step.path) else step.target
    if now != step.target and os.path.isdir(step.path):
        raise NothingChanged(
            f"{now} is current by now, and would be left without its links",
            where=step.path,
            next_step=f"to be rid of {step.target} alone: `cudnn-doctor uninstall {step.target}`",
        )


def _changed_since(plan: Plan) -> tuple[str, ...]:
    """Of the last step on each path, because one plan may write a file more than once."""
    last = {s.path: s for s in plan.steps if isinstance(s, WriteFile | SwitchLink)}
    return tuple(
        ours.edited(path)
        for path, step in last.items()
        if os.path.lexists(path) and not layout.is_so(step)
    )


def _replaced_since(plan: Plan) -> Iterator[str]:
    """Whether others changed the cuDNN of an environment after this tool did."""
    for step in plan.steps if plan.method == "wheel" and plan.action == "install" else ():
        if isinstance(step, GuardPackages):
            site = step.site_packages
            infos = [path.name for path in folders.listed(site, "nvidia_cudnn_*.dist-info")]
            if not any(f"-{plan.version}." in info for info in infos):
                there = ", ".join(info.removesuffix(".dist-info") for info in infos) or "none"
                yield f"cuDNN {plan.version} is no more in {site}, but {there}"


def plan_use(entry: Installed) -> Plan:
    """Make an installed version the current one of its prefix."""
    if entry.method != "tarball":
        raise DoctorError(
            f"{entry.name} is a {entry.method}: only versions in a prefix lie side by side",
            next_step=f"use `cudnn-doctor install --method {entry.method} --version ...`",
            exit_code=ExitCode.USAGE,
        )
    told = layout.loader_is_told(entry.target)
    steps = layout.only_changes([*layout.make_current(entry.target, entry.name, ldconfig=told)])
    return _prefix_plan("use", entry, steps)


def plan_uninstall(state: State, entry: Installed) -> Plan:
    """Remove one version; when it was the current one, the newest other becomes current."""
    if entry.method != "tarball":
        receipt = next(r for r in receipts(state) if r.id == entry.receipt)
        return _taken_back(receipt, "uninstall")
    prefix, name = entry.target, entry.name
    told = layout.loader_is_told(prefix)
    others = [other for other in layout.versions(prefix) if other != name]
    steps: list[AnyStep] = []
    if others and entry.current:
        newest = max(others, key=_number)
        steps += layout.only_changes([*layout.make_current(prefix, newest, ldconfig=told)])
    module = layout.module_of(prefix, name)
    own = (_set_aside(f"{prefix}/{name}"), RemoveTree(title=f"remove {module}", path=module))
    steps += own if others else layout.make_none_current(prefix, own, ldconfig=told)
    return _prefix_plan("uninstall", entry, steps)


def _set_aside(folder: str) -> RemoveTree:
    title = f"set {folder} aside (until the next change here, or `cache clear`)"
    return RemoveTree(title=title, path=folder, keep=True)


def set_aside(state: State, prefix: str | None = None) -> list[tuple[Path, int]]:
    """Folders kept for a rollback, with the bytes that are only there (others are hard links to
    files in use or in uv's cache)."""
    done = receipts(state)
    targets = [r.plan.target for r in done if r.plan.method == "tarball"]
    places = [prefix] if prefix else [*_usual(), *targets]
    found = [path for place in dict.fromkeys(places) for path in files.kept(place)]
    found += sorted(kept.STORE.glob("*")) if prefix is None else []
    steps = [step for r in done for step in r.plan.steps] if prefix is None else []
    sites = [step.site_packages for step in steps if isinstance(step, GuardPackages)]
    found += [path for site in dict.fromkeys(sites) for path in guard.kept(Path(site))]
    return [(path, sum(map(_own_bytes, path.rglob("*")))) for path in found]


def _own_bytes(path: Path) -> int:
    facts = path.lstat()
    return facts.st_size if facts.st_nlink == 1 else 0


def plan_repair(state: State, entry: Installed, damage: list[str]) -> Plan:
    """Fetch a damaged version anew, from where it came, and put it in the place of the old one."""
    final = f"{entry.target}/{entry.name}"
    receipt = next((r for r in reversed(receipts(state)) if puts(r, final)), None)
    if receipt is None:
        raise NothingChanged(
            f"{entry.name} is damaged ({damage[0]}), and there is no receipt of where it came from",
            where=final,
            next_step="remove it with `cudnn-doctor uninstall` and install it again",
        )
    steps: list[AnyStep] = []
    for step in receipt.plan.steps:
        if isinstance(step, MoveTree) and step.target == final:
            steps += [_set_aside(final), step]
            break
        if not isinstance(step, RemoveTree):
            steps.append(step)
    return _plan(receipt.plan, "repair", steps, reasons=tuple(damage))


def puts(receipt: Receipt, final: str) -> bool:
    steps = receipt.plan.steps
    return any(isinstance(step, MoveTree) and step.target == final for step in steps)


def _number(name: str) -> list[int]:
    return [int(part) for part in name.partition("-")[0].split(".") if part.isdigit()]


def _prefix_plan(action: str, entry: Installed, steps: Iterable[AnyStep]) -> Plan:
    version, _, cuda = entry.name.partition("-cuda")
    base = Plan(
        action=action,
        method="tarball",
        version=version,
        cuda=cuda.partition("-")[0],
        target=entry.target,
    )
    return _plan(base, action, steps)


def _plan(
    like: Plan,
    action: str,
    steps: Iterable[AnyStep],
    *,
    reasons: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
    undoes: str = "",
) -> Plan:
    plan = Plan(
        action=action,
        method=like.method,
        version=like.version,
        cuda=like.cuda,
        target=like.target,
        steps=tuple(steps),
        reasons=reasons,
        warnings=warnings,
        undoes=undoes,
    )
    return ours.settled(plan) if plan.method == "tarball" else plan
