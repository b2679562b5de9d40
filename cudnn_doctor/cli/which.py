"""``cudnn-doctor which``: the file that each cuDNN library resolves to, and why."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cudnn_doctor.errors import DoctorError, ExitCode

if TYPE_CHECKING:
    from cudnn_doctor.machine.host import Host
    from cudnn_doctor.machine.loads import Consumer, LoadPlan, Traced
    from cudnn_doctor.machine.model import Machine

EPILOG = """\
[bold]Examples[/bold]

  cudnn-doctor which
  cudnn-doctor which torch --python ./venv
  cudnn-doctor which torch --trace
  cudnn-doctor which ./my_program -v
  LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu cudnn-doctor which jax
  cudnn-doctor which --snapshot machine.json --json

[bold]How it knows[/bold]

It does what ld.so does, with the frameworks' own preloads, and runs
nothing. --trace proves it: a child process really loads cuDNN and reads
what got mapped.

[bold]Exit codes[/bold]

0 told; 1 the consumer you named (or traced) cannot load cuDNN;
2 wrong usage or no such framework here; 7 a file cannot be used.
"""


def which(
    consumer: Annotated[
        str | None,
        typer.Argument(
            metavar="[FRAMEWORK|PROGRAM]",
            help="A framework (torch, jax ...), dlopen for a plain program, or a program's path.",
        ),
    ] = None,
    *,
    python: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Look into this Python environment as well. Repeatable."),
    ] = None,
    root: Annotated[
        str, typer.Option(metavar="DIR", help="Look at a mounted root file system instead.")
    ] = "/",
    snapshot: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Answer for a saved or described machine; - is stdin."),
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Prove it: load it in a child process.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="One line a file, whole paths, names tried.")
    ] = False,
) -> None:
    """Show which file each cuDNN library resolves to for each framework, and why."""
    from cudnn_doctor.machine.host import Host
    from cudnn_doctor.machine.loader import simulate

    if snapshot is not None and (root != "/" or python or trace):
        raise DoctorError(
            "--snapshot answers for saved facts: --root, --python and --trace need a machine",
            exit_code=ExitCode.USAGE,
        )
    machine = _facts(snapshot, root, tuple(python or ()))
    host = Host(root)
    if consumer and "/" in consumer:
        machine, chosen = _program(host, machine, os.path.abspath(consumer), snapshot)
    else:
        chosen = _chosen(machine, consumer, tuple(python or ()))
    plans = tuple(simulate(machine, one) for one in chosen)
    traces = _traces(host, machine, plans) if trace else ()
    _print(plans, traces, as_json=json, verbose=verbose)
    failed = any(not traced.ok for traced in traces)
    if failed or (consumer and any(_cannot_load(plan) for plan in plans)):
        raise typer.Exit(int(ExitCode.PROBLEMS))


def _facts(snapshot: str | None, root: str, python: tuple[str, ...]) -> Machine:
    if snapshot is not None:
        from cudnn_doctor.machine.snapshot import load_snapshot

        return load_snapshot(snapshot)
    from cudnn_doctor.machine.probe import ProbeOptions, probe_machine

    return probe_machine(ProbeOptions(root=root, python=python))


def _chosen(machine: Machine, name: str | None, python: tuple[str, ...]) -> tuple[Consumer, ...]:
    """The consumers of that name, else all. Raises DoctorError when there is none."""
    from cudnn_doctor.machine.consumers import consumers, framework_consumer

    if name is None:
        return consumers(machine)
    told = [framework_consumer(machine, f) for f in machine.frameworks if f.name == name]
    found = told or [c for c in consumers(machine) if c.name == name]
    if found:
        return tuple(found)
    here = sorted({f.name for f in machine.frameworks} | {"dlopen"})
    raise DoctorError(
        f"no {name} in any environment that was found",
        where="found are: " + ", ".join(here),
        next_step="name its environment with --python PATH, or a program by a path with a slash",
        exit_code=ExitCode.USAGE,
    )


def _program(
    host: Host, machine: Machine, path: str, snapshot: str | None
) -> tuple[Machine, tuple[Consumer, ...]]:
    """The machine with the program's own files, and the program as a consumer."""
    import msgspec

    from cudnn_doctor.machine.consumers import PROGRAM
    from cudnn_doctor.machine.libraries import read_program
    from cudnn_doctor.machine.loads import Consumer

    files = read_program(host, path, machine.loader) if snapshot is None else machine.libraries
    own = next((lib for lib in files if lib.path == path), None)
    if own is None or own.status in {"not-elf", "unreadable"}:
        raise DoctorError(
            "no such file" if own is None else "not a native program or library",
            where=path,
            next_step="name a framework, or the ELF file that loads cuDNN",
            exit_code=ExitCode.USAGE,
        )
    known = {lib.path for lib in machine.libraries}
    added = tuple(lib for lib in files if lib.path not in known)
    machine = msgspec.structs.replace(machine, libraries=(*machine.libraries, *added))
    return machine, (Consumer(name=path, scheme=PROGRAM, binaries=(path,)),)


def _traces(host: Host, machine: Machine, plans: tuple[LoadPlan, ...]) -> tuple[Traced, ...]:
    from cudnn_doctor.machine.trace import trace

    return tuple(trace(host, plan.consumer, machine.environments) for plan in plans)


def _cannot_load(plan: LoadPlan) -> bool:
    if plan.uses_cudnn is False:
        return False
    return plan.shim is None or plan.shim.path is None or bool(plan.shim.problem)


def _print(
    plans: tuple[LoadPlan, ...], traces: tuple[Traced, ...], *, as_json: bool, verbose: bool
) -> None:
    from cudnn_doctor.report.style import Style
    from cudnn_doctor.report.which import render, render_json

    if as_json:
        print(render_json(plans, traces), end="")
    elif plans:
        print(render(plans, traces, Style.of(sys.stdout), verbose=verbose), end="")
    else:
        print("Nothing here would load cuDNN: no framework and no copy was found.")
