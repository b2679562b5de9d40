"""Show a plan, ask, do it, say what came of it: the same for every command that changes things."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cudnn_doctor.errors import DoctorError, ExitCode, NothingChanged

if TYPE_CHECKING:
    from cudnn_doctor.install.plan import Plan

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="Of the dry run: text, json, shell, dockerfile, apptainer, ansible-tasks.",
    ),
]
Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", help="Wait so long for another run to end.")
]
Sudo = Annotated[bool, typer.Option("--sudo", help="Where root is needed, use sudo.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def _prefix(given: str | None) -> str | None:
    from cudnn_doctor.install.prefixes.layout import checked

    return None if given is None else checked(given)


Prefix = Annotated[
    str | None,
    typer.Option(
        "--prefix", metavar="DIR", callback=_prefix, help="Folder that holds the versions."
    ),
]

_NETWORK = frozenset(
    (
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "PIP_INDEX_URL", "PIP_CERT", "UV_DEFAULT_INDEX"),
    )
)


class How(NamedTuple):
    """How to carry a plan out."""

    yes: bool = False
    dry_run: bool = False
    format: str = "text"
    wait: float = 0.0
    sudo: bool = False
    as_json: bool = False


def check_format(name: str) -> None:
    """Raise a usage error for a format that does not exist."""
    from cudnn_doctor.report.plan import FORMATS

    if name not in FORMATS:
        raise DoctorError(
            f"there is no format {name!r}",
            next_step=f"use one of {', '.join(FORMATS)}",
            exit_code=ExitCode.USAGE,
        )


@contextlib.contextmanager
def alone(how: How) -> Iterator[None]:
    """Hold the lock from before planning to the end, and settle what a killed run left."""
    from cudnn_doctor.install.executor import recover
    from cudnn_doctor.install.state import exclusive, locate
    from cudnn_doctor.report.progress import progress

    if how.dry_run:
        tell_damaged()
        yield
        return
    with exclusive(locate(), how.wait):
        recover(locate(), progress())
        tell_damaged()
        yield


def tell_damaged() -> None:
    """Say which receipts cannot be read and are passed over."""
    from cudnn_doctor.install.receipts import damaged
    from cudnn_doctor.install.state import locate
    from cudnn_doctor.report.style import visible

    for error in damaged(locate()):
        typer.echo(visible(f"warning: {error.what} ({error.where})"), err=True)


def apply(plan: Plan, how: How) -> None:
    """Carry a plan out as told, inside `alone`; raises DoctorError when it is refused or fails."""
    from cudnn_doctor.report.plan import FORMATS

    check_format(how.format)
    if how.dry_run:
        typer.echo(FORMATS["json" if how.as_json else how.format](plan))
        return
    _tell(plan, carry_out(plan, how), how)


def carry_out(plan: Plan, how: How) -> str | None:
    """Show a plan, ask, do it; returns the receipt's id, None where nothing was to be changed."""
    from cudnn_doctor.install.executor import execute, prove_only
    from cudnn_doctor.install.state import locate
    from cudnn_doctor.report.plan import to_text
    from cudnn_doctor.report.progress import progress

    refused = _root_is_needed(plan) if os.geteuid() != 0 else None
    if refused:
        become_root(how)
    typer.echo(to_text(plan) + "\n", err=how.as_json)
    if plan.only_proves:
        prove_only(plan, progress())
        return None
    if refused:
        raise refused
    _ask(how)
    try:
        return execute(plan, locate(), progress(), locked=True).name
    except KeyboardInterrupt:
        typer.echo("interrupted: nothing was changed", err=True)
        raise typer.Exit(int(ExitCode.INTERRUPTED)) from None


def _ask(how: How) -> None:
    if how.yes:
        return
    if not sys.stdin.isatty():
        raise DoctorError(
            "nothing was done: there is no terminal to ask at",
            next_step="add --yes to do it, or --dry-run to only see it",
            exit_code=ExitCode.USAGE,
        )
    if not typer.confirm("\nDo it?", err=True):
        raise NothingChanged("nothing was done")


def become_root(how: How) -> None:
    """With ``--sudo``, do the whole command over again as root, and end as it ends. Root gets this
    PATH, where the user's uv and pip are, and the variables by which they reach an index."""
    if how.sudo and os.geteuid() != 0:
        from cudnn_doctor.interpreter import running

        arguments = [argument for argument in sys.argv[1:] if argument != "--sudo"]
        folders = [f for f in os.environ.get("PATH", "").split(":") if f.startswith("/")]
        path = f"PATH={':'.join(folders)}"
        kept = [name for name in os.environ if name.upper() in _NETWORK]
        keep = [f"--preserve-env={','.join(kept)}"] if kept else []
        argv = ["sudo", *keep, "--", "env", path, *running("cudnn_doctor"), *arguments]
        sys.exit(subprocess.run(argv, check=False).returncode)


def _root_is_needed(plan: Plan) -> DoctorError | None:
    """Why an ordinary user cannot do it; None when one can."""
    from cudnn_doctor.install.folders import nearest

    place = nearest(plan.target)
    if plan.needs_root:
        steps = "\n".join(f"  {step.title}" for step in plan.steps if step.needs_root)
        what = f"this needs root:\n{steps}"
    elif plan.method == "tarball" and not os.access(place, os.W_OK):
        what = f"this needs root: you may not write into {place}"
    else:
        return None
    return NothingChanged(
        what,
        next_step="add --sudo, run it as root, or print the commands with --dry-run --format shell",
    )


def _tell(plan: Plan, receipt: str | None, how: How) -> None:
    if how.as_json:
        from cudnn_doctor.report.plan import document

        typer.echo(json.dumps({**document(plan), "changed": bool(receipt), "receipt": receipt}))
    elif plan.steps and not receipt:
        typer.echo("All of it is there already and whole: nothing was changed.")
    elif receipt:
        back = not plan.undoes
        sudo = " --sudo" if os.geteuid() == 0 and "SUDO_USER" in os.environ else ""
        undo = f" Undo it with: cudnn-doctor rollback {receipt}{sudo}" if back else ""
        typer.echo(f"\nDone.{undo}")
        if plan.method == "tarball" and plan.action in ("install", "use"):
            typer.echo(f"In a shell: . {shlex.quote(plan.target)}/env.sh")
