"""The Typer application: commands are registered here, errors become messages and exit codes."""

from __future__ import annotations

import sys

import typer

from cudnn_doctor import __version__
from cudnn_doctor.cli import (
    check,
    downloads,
    explain,
    install,
    installed,
    matrix,
    resolve,
    verify,
    which,
)
from cudnn_doctor.cli import run as run_command
from cudnn_doctor.errors import DoctorError, ExitCode

app = typer.Typer(
    name="cudnn-doctor",
    help="Find, install, prove and mend NVIDIA cuDNN on Linux.",
    no_args_is_help=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


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
        check.check()


app.command(epilog=check.EPILOG)(check.check)
app.command(epilog=resolve.EPILOG)(resolve.resolve)
app.command(epilog=which.EPILOG)(which.which)
app.command(epilog=verify.EPILOG)(verify.verify)
app.command(epilog=install.EPILOG)(install.install)
app.command("list")(installed.list_)
app.command()(installed.use)
app.command()(installed.uninstall)
app.command()(installed.rollback)
app.command()(installed.repair)
app.command()(downloads.download)
app.add_typer(downloads.cache, name="cache")
app.add_typer(matrix.app, name="matrix")
app.command(epilog=explain.EPILOG)(explain.explain)
app.command(
    "run",
    epilog=run_command.EPILOG,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": False},
)(run_command.run)


def run() -> None:
    """Run the application; every failure ends with a message on stderr and a documented code."""
    try:
        app()
    except DoctorError as error:
        _print_error(error)
        sys.exit(int(error.exit_code))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(int(ExitCode.INTERRUPTED))
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(int(ExitCode.OK))


def _print_error(error: DoctorError) -> None:
    place = f" ({error.where})" if error.where else ""
    print(f"error: {error.what}{place}", file=sys.stderr)
    if error.next_step:
        print(f"  next: {error.next_step}", file=sys.stderr)
