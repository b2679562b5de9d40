"""``cudnn-doctor verify``: prove a cuDNN by real work on the GPU."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cudnn_doctor.cli import output as out
from cudnn_doctor.errors import BadInput, DoctorError, ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cudnn_doctor.machine.model import Machine
    from cudnn_doctor.verify.choose import Chosen
    from cudnn_doctor.verify.model import Level, Verdict

EPILOG = """\
[bold]Examples[/bold]

  cudnn-doctor verify
  cudnn-doctor verify --quick --framework torch
  cudnn-doctor verify --full --lib /opt/cudnn/lib --all-gpus --json
  cudnn-doctor verify --lib /opt/cudnn-old/lib --compare /opt/cudnn-new/lib

[bold]Exit codes[/bold]

0 every rung that was asked for passed; 1 so it did, but the copy was found
to have a wrong result that its release is known for; 2 wrong usage; 3 the
GPU rungs could not be run; 6 a rung failed.
"""


def verify(
    *,
    lib: Annotated[str | None, typer.Option(metavar="DIR", help="The copy in this folder.")] = None,
    python: Annotated[
        str | None, typer.Option(metavar="ENV", help="The copy in this Python environment.")
    ] = None,
    framework: Annotated[
        str | None, typer.Option(metavar="NAME", help="The copy that this framework would load.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Initialise and a handful of convolutions.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Large shapes and more types too.")] = False,
    gpu: Annotated[
        int | None, typer.Option(metavar="N", help="The Nth GPU; the first is 0.")
    ] = None,
    all_gpus: Annotated[
        bool, typer.Option("--all-gpus", help="Every GPU and MIG instance, side by side.")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option(metavar="S", min=1, help="Seconds for one child process.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Seed of the random data.")
    ] = None,
    compare: Annotated[
        str | None, typer.Option(metavar="DIR", help="A second copy to do the same work.")
    ] = None,
    cudnn_log: Annotated[
        str | None, typer.Option(metavar="FILE", help="Let cuDNN log all its calls there.")
    ] = None,
    references: Annotated[str, typer.Option(hidden=True)] = "auto",
    format: out.Format = "text",
    reports: out.Reports = None,
    json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Every step.")] = False,
) -> None:
    """Prove that a cuDNN works on the GPU, by checked convolutions through that very copy."""
    if quick and full:
        raise typer.BadParameter("--quick and --full exclude each other")
    if sum(bool(option) for option in (lib, python, framework)) > 1 and not (python and framework):
        raise typer.BadParameter("--lib excludes --python and --framework")
    import os
    import secrets
    from functools import partial

    from cudnn_doctor.machine.host import Host
    from cudnn_doctor.machine.probe import ProbeOptions, probe_machine
    from cudnn_doctor.machine.recorded import compare_folder
    from cudnn_doctor.matrix.load import load
    from cudnn_doctor.verify.choose import targets
    from cudnn_doctor.verify.prove import Options, prove_all

    files = out.parse_reports(reports)
    level: Level = "quick" if quick else "full" if full else "default"
    shown = "json" if json else format
    with out.told_on_failure("verify", shown, files):
        machine = probe_machine(ProbeOptions(python=(python,) if python else ()))
        copies = [_choose(machine, lib, python, framework)]
        if compare:
            copies.append(_in_folder(machine, compare))
        options = Options(
            level=level,
            seed=secrets.randbelow(1 << 31) if seed is None else seed,
            timeout=timeout,
            references=references,
            cudnn_log=cudnn_log,
            progress=_progress(json or format != "text"),
            compare=None if quick else partial(compare_folder, Host()),
        )
        chosen_targets = targets(machine.gpus, os.environ, gpu, all_gpus)
        pairs = [
            (_with_cublas(copy, machine), target) for target in chosen_targets for copy in copies
        ]
        verdicts = prove_all(pairs, options, load(None), os.environ)
    _print(verdicts, machine, shown, files, verbose)
    raise typer.Exit(int(_exit_code(verdicts)))


def _choose(machine: Machine, lib: str | None, python: str | None, framework: str | None) -> Chosen:
    from cudnn_doctor.machine.consumers import framework_consumer, plain_consumers
    from cudnn_doctor.machine.loader import simulate
    from cudnn_doctor.verify.choose import from_plan

    if lib:
        return _in_folder(machine, lib)
    if framework:
        found = [f for f in machine.frameworks if f.name == framework]
        if python:
            import os

            prefix = _prefix(python)
            found = [f for f in found if os.path.realpath(f.environment) == prefix] or found
        if not found:
            raise DoctorError(
                f"{framework} is in none of the environments looked at",
                next_step="name its environment with --python",
                exit_code=ExitCode.CANNOT_TELL,
            )
        return from_plan(machine, simulate(machine, framework_consumer(machine, found[0])))
    if python:
        return _of_environment(machine, python)
    plain = plain_consumers(machine)
    if not plain:
        raise DoctorError(
            "there is no cuDNN on this machine",
            next_step="cudnn-doctor install, or name a folder with --lib",
            exit_code=ExitCode.CANNOT_TELL,
        )
    plans = [simulate(machine, consumer) for consumer in plain]
    return from_plan(machine, next((p for p in plans if p.shim and p.shim.path), plans[0]))


def _in_folder(machine: Machine, folder: str) -> Chosen:
    """A copy by its folder, seen by the probes or not."""
    import os

    from cudnn_doctor.machine.host import Host
    from cudnn_doctor.machine.libraries import read_program
    from cudnn_doctor.verify.choose import from_folder

    if not os.path.isdir(folder):
        raise BadInput("no such folder", where=folder)
    real = os.path.realpath(folder)
    names = sorted(n for n in os.listdir(real) if n.startswith("libcudnn.so."))
    host = Host()
    found = read_program(host, f"{real}/{names[0]}", machine.loader) if names else ()
    copy = next((c for c in machine.copies or () if c.folder == real), None)
    return from_folder(
        real,
        found,
        label=f"--lib {folder}",
        cuda=copy.cuda if copy else None,
        version=copy.version if copy else None,
    )


def _prefix(python: str) -> str:
    """Real folder of an environment that is named by its folder or its interpreter."""
    import os

    from cudnn_doctor.machine.host import Host
    from cudnn_doctor.machine.places import prefix_of

    return os.path.realpath(prefix_of(Host(), python) or python)


def _of_environment(machine: Machine, python: str) -> Chosen:
    import os

    prefix = _prefix(python)
    for copy in machine.copies or ():
        if copy.environment and os.path.realpath(copy.environment) == prefix and copy.shim:
            return _in_folder(machine, copy.folder)
    raise DoctorError(
        "no cuDNN is in this Python environment", where=python, exit_code=ExitCode.CANNOT_TELL
    )


def _with_cublas(chosen: Chosen, machine: Machine) -> Chosen:
    import os

    import msgspec

    from cudnn_doctor.verify.choose import cublas_paths

    copy = chosen.copy
    found = [p for p in cublas_paths(copy, machine) if "/" not in p or os.path.exists(p)]
    return chosen._replace(copy=msgspec.structs.replace(copy, cublas=tuple(found)))


def _progress(json: bool) -> Callable[[str], None] | None:
    if json or not sys.stderr.isatty():
        return None

    def show(text: str) -> None:
        print(f"\r\x1b[K{text[:78]}", end="", file=sys.stderr, flush=True)

    return show


def _print(
    verdicts: Sequence[Verdict],
    machine: Machine,
    format: str,
    files: dict[str, str],
    verbose: bool,
) -> None:
    from cudnn_doctor.machine.redact import hide_secrets
    from cudnn_doctor.report.outcomes import of_verify
    from cudnn_doctor.report.style import Style

    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    run = of_verify(
        [hide_secrets(verdict) for verdict in verdicts],
        int(_exit_code(verdicts)),
        machine=machine,
        style=Style.of(sys.stdout),
        verbose=verbose,
    )
    out.emit(run, format, files)


def _exit_code(verdicts: Sequence[Verdict]) -> ExitCode:
    if any(verdict.failed for verdict in verdicts):
        return ExitCode.VERIFICATION_FAILED
    from cudnn_doctor.verify.prove import LEFT_OUT

    if any(fault.confirmed for verdict in verdicts for fault in verdict.known):
        return ExitCode.PROBLEMS
    asked = [rung for v in verdicts for rung in v.rungs if rung.why != LEFT_OUT]
    ran = all(rung.status == "pass" for rung in asked)
    return ExitCode.OK if ran else ExitCode.CANNOT_TELL
