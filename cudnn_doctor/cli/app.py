"""The Typer application: commands are listed here, errors become messages and exit codes."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from typing import Any, ClassVar

import typer

from cudnn_doctor import __version__
from cudnn_doctor.cli.exitcodes import EPILOG
from cudnn_doctor.cli.lazy import LazyGroup, Place
from cudnn_doctor.errors import DoctorError, ExitCode


class Commands(LazyGroup):
    """All commands, in the order of the help."""

    places: ClassVar = {
        "check": Place("check", "check"),
        "resolve": Place("resolve", "resolve"),
        "which": Place("which", "which"),
        "verify": Place("verify", "verify"),
        "report": Place("report", "report"),
        "install": Place("install", "install"),
        "list": Place("installed", "list_", ("cudnn-doctor list", "cudnn-doctor list --json")),
        "use": Place("installed", "use", ("cudnn-doctor use 9.10.2 --prefix /opt/cudnn --sudo",)),
        "uninstall": Place(
            "installed",
            "uninstall",
            ("cudnn-doctor uninstall 9.10.2 --dry-run", "cudnn-doctor uninstall 9.10.2 --yes"),
        ),
        "rollback": Place(
            "installed",
            "rollback",
            ("cudnn-doctor rollback --dry-run", "cudnn-doctor rollback --sudo"),
        ),
        "repair": Place("installed", "repair", ("cudnn-doctor repair --dry-run",)),
        "download": Place(
            "downloads",
            "download",
            (
                "cudnn-doctor download --version 9.10.2 --cuda 12 --dest carry",
                "cudnn-doctor download --source wheel --for torch --gpu 9.0 --driver 570",
            ),
        ),
        "cache": Place("downloads", "cache"),
        "matrix": Place("matrix", "app"),
        "explain": Place("explain", "explain"),
        "fix": Place("fix", "fix"),
        "run": Place("run", "run", (), {"allow_extra_args": True, "ignore_unknown_options": False}),
    }


app = typer.Typer(
    name="cudnn-doctor",
    cls=Commands,
    help="Find, install, prove and mend NVIDIA cuDNN on Linux.",
    epilog=EPILOG,
    no_args_is_help=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


_COLLECT_EVERY = 200_000
"""Objects made between two garbage collections: at the usual 700, imports cost a third more."""


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"cudnn-doctor {__version__}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Print the version."
    ),
) -> None:
    if context.invoked_subcommand is None:
        from cudnn_doctor.cli.check import check

        check()


def run() -> None:
    """Run the application; every failure ends with a message on stderr and a documented code."""
    gc.set_threshold(_COLLECT_EVERY)
    _make_streams_safe()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except DoctorError as error:
        _print_error(error)
        sys.exit(int(error.exit_code))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(int(ExitCode.INTERRUPTED))
    except Exception as error:
        sys.exit(int(_unexpected(error)))


def _unexpected(error: Exception) -> ExitCode:
    """A full disk under the output, else a bug of ours."""
    full = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
    if isinstance(error, OSError) and error.errno in full and error.filename is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
        print(f"error: cannot write the output: {error.strerror}", file=sys.stderr)
        return ExitCode.CANNOT_TELL
    import traceback

    traceback.print_exc()
    print("error: a bug in cudnn-doctor; please report it with these lines", file=sys.stderr)
    return ExitCode.INTERNAL


class _Output(io.FileIO):
    """A standard stream. Once its reader has gone, what is written goes nowhere: the reader decides
    neither what is done nor the exit code."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), self.fileno())
            return super().write(data)


def _make_streams_safe() -> None:
    """Closed streams go nowhere; what a stream's encoding lacks is written as an escape."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif stream is getattr(sys, f"__{name}__"):
            output = io.BufferedWriter(_Output(stream.fileno(), "wb", closefd=False))
            by_line = stream.line_buffering or stream.write_through
            safe = io.TextIOWrapper(output, stream.encoding, "backslashreplace", None, by_line)
            setattr(sys, name, safe)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _print_error(error: DoctorError) -> None:
    from cudnn_doctor.machine.redact import without_secrets
    from cudnn_doctor.report.style import visible

    place = f" ({error.where})" if error.where else ""
    print(visible(without_secrets(f"error: {error.what}{place}")), file=sys.stderr)
    if error.next_step:
        print(visible(without_secrets(f"  next: {error.next_step}")), file=sys.stderr)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        from cudnn_doctor.report.formats.github import of_error

        print(without_secrets(of_error(error)), file=sys.stderr)
