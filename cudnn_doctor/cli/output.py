"""Options about output formats, shared by ``check`` and ``verify``, and what they do."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.outfile import write_whole
from cudnn_doctor.report import formats

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudnn_doctor.report.outcomes import Run


def _known(value: str) -> str:
    if value not in formats.names():
        raise typer.BadParameter(f"{value!r} is none of {', '.join(formats.names())}")
    return value


Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        callback=_known,
        help=f"How to print: {', '.join(formats.names())}.",
    ),
]
Reports = Annotated[
    list[str] | None,
    typer.Option(
        "--report",
        metavar="FORMAT=FILE",
        help="Write this format to a file besides. Repeatable.",
    ),
]


def parse_reports(values: list[str] | None) -> dict[str, str]:
    """File -> format. Raises DoctorError (USAGE)."""
    found = {}
    for value in values or ():
        name, _, path = value.partition("=")
        if name not in formats.names() or not path:
            raise DoctorError(
                f"--report {value!r} is not FORMAT=FILE",
                next_step=f"write --report junit=report.xml; formats: {', '.join(formats.names())}",
                exit_code=ExitCode.USAGE,
            )
        found[path] = name
    return found


@contextlib.contextmanager
def told_on_failure(
    command: Literal["check", "verify"], name: str, reports: dict[str, str]
) -> Iterator[None]:
    """Write a DoctorError of the block to every report, and to the workflow, before it goes on."""
    try:
        yield
    except DoctorError as error:
        from cudnn_doctor.report.failure import of_error

        run = of_error(command, error)
        for path, other in reports.items():
            write(path, formats.render(other, run))
        formats.afterwards(name, run, os.environ)
        raise


def emit(run: Run, name: str, reports: dict[str, str], *, quiet: bool = False) -> None:
    """Print the run in one format and write the others to their files.

    Raises DoctorError when a file cannot be written.
    """
    for path, other in reports.items():
        write(path, formats.render(other, run))
    if not quiet:
        print(formats.render(name, run), end="")
        formats.afterwards(name, run, os.environ)


def write(path: str, text: str) -> None:
    """Write a report, whole or not at all. Raises DoctorError."""
    try:
        write_whole(path, text.encode("utf-8", "replace"))
    except OSError as error:
        raise DoctorError(
            f"cannot write the report: {error.strerror or error}",
            where=path,
            next_step="name a file in a folder that you may write to",
            exit_code=ExitCode.CANNOT_TELL,
        ) from error
