"""What is installed and was done: ``list``, ``use``, ``uninstall``, ``rollback``, ``repair``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cudnn_doctor.cli import apply as ap

Name = Annotated[str, typer.Argument(help="9.10.2-cuda12, or 9.10.2 where that is clear.")]


def list_(prefix: ap.Prefix = None, as_json: ap.AsJson = False) -> None:
    """List what this tool installed, and the receipts of what it did."""
    from cudnn_doctor.install.receipts import installed, receipts, set_aside
    from cudnn_doctor.install.state import locate
    from cudnn_doctor.report.style import visible

    ap.tell_damaged()
    entries = installed(locate(), prefix)
    done = receipts(locate())
    aside = set_aside(locate(), prefix)
    if as_json:
        changes = [
            {
                "receipt": r.id,
                "action": r.plan.action,
                "version": r.plan.version,
                "target": r.plan.target,
                "undoes": r.plan.undoes or None,
            }
            for r in done
        ]
        installed_now = [entry._asdict() for entry in entries]
        kept = [{"path": str(path), "bytes": size} for path, size in aside]
        found = {"installed": installed_now, "changes": changes, "set_aside": kept}
        typer.echo(json.dumps({"schema": 1, **found}))
        return
    for entry in entries:
        mark = "*" if entry.current else " "
        typer.echo(visible(f"{mark} {entry.name:20} {entry.method:8} {entry.target}"))
    if not entries:
        typer.echo("Nothing is installed by cudnn-doctor.")
    for path, size in aside:
        kept_here = f"  {path}: kept for a rollback, {size:,} bytes (`cache clear` frees them)"
        typer.echo(visible(kept_here))
    if done:
        typer.echo("\nChanges, oldest first (take the newest back with cudnn-doctor rollback)")
    for receipt in done:
        plan = receipt.plan
        said = f"{plan.action} of {plan.undoes}" if plan.undoes else f"{plan.action} {plan.version}"
        typer.echo(visible(f"  {receipt.id}  {said}  {plan.target}"))


def use(
    name: Name,
    *,
    prefix: ap.Prefix = None,
    yes: ap.Yes = False,
    dry_run: ap.DryRun = False,
    format: ap.Format = "text",
    wait: ap.Wait = 0.0,
    sudo: ap.Sudo = False,
    as_json: ap.AsJson = False,
) -> None:
    """Make an installed version the current one of its prefix, atomically."""
    from cudnn_doctor.install.receipts import find, installed, plan_use
    from cudnn_doctor.install.state import locate

    how = ap.How(yes, dry_run, format, wait, sudo, as_json)
    ap.become_root(how)
    with ap.alone(how):
        ap.apply(plan_use(find(installed(locate(), prefix), name)), how)


def uninstall(
    name: Name,
    *,
    prefix: ap.Prefix = None,
    yes: ap.Yes = False,
    dry_run: ap.DryRun = False,
    format: ap.Format = "text",
    wait: ap.Wait = 0.0,
    sudo: ap.Sudo = False,
    as_json: ap.AsJson = False,
) -> None:
    """Remove a version that this tool installed."""
    from cudnn_doctor.install.receipts import find, installed, plan_uninstall
    from cudnn_doctor.install.state import locate

    how = ap.How(yes, dry_run, format, wait, sudo, as_json)
    ap.become_root(how)
    with ap.alone(how):
        ap.apply(plan_uninstall(locate(), find(installed(locate(), prefix), name)), how)


def rollback(
    receipt: Annotated[str | None, typer.Argument(help="Id of a receipt; else the newest.")] = None,
    *,
    yes: ap.Yes = False,
    dry_run: ap.DryRun = False,
    format: ap.Format = "text",
    wait: ap.Wait = 0.0,
    sudo: ap.Sudo = False,
    as_json: ap.AsJson = False,
) -> None:
    """Take the newest change back: the machine is as it was before it."""
    from cudnn_doctor.install.receipts import plan_rollback
    from cudnn_doctor.install.state import locate

    how = ap.How(yes, dry_run, format, wait, sudo, as_json)
    ap.become_root(how)
    with ap.alone(how):
        ap.apply(plan_rollback(locate(), receipt), how)


def repair(
    *,
    prefix: ap.Prefix = None,
    yes: ap.Yes = False,
    dry_run: ap.DryRun = False,
    format: ap.Format = "text",
    wait: ap.Wait = 0.0,
    sudo: ap.Sudo = False,
    as_json: ap.AsJson = False,
) -> None:
    """Finish or undo an interrupted change; fetch damaged versions anew."""
    from cudnn_doctor.install import manifest
    from cudnn_doctor.install.receipts import installed, plan_repair
    from cudnn_doctor.install.state import locate

    how = ap.How(yes, dry_run, format, wait, sudo, as_json)
    ap.become_root(how)
    whole = True
    with ap.alone(how):
        for entry in installed(locate(), prefix):
            folder = Path(entry.target, entry.name)
            if entry.method == "tarball" and (damage := manifest.damage(folder)):
                whole = False
                ap.apply(plan_repair(locate(), entry, damage), how)
    if whole:
        typer.echo("Nothing is unfinished or damaged.", err=as_json)
