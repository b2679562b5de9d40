"""``cudnn-doctor matrix``: read, check, compile and update the compatibility matrix."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from cudnn_doctor.cli.lazy import examples
from cudnn_doctor.errors import DoctorError, ExitCode, NothingChanged

app = typer.Typer(
    help="Read, check and update the compatibility matrix.",
    epilog=examples("cudnn-doctor matrix show 9.10.2", "cudnn-doctor matrix validate"),
    no_args_is_help=True,
    rich_markup_mode="rich",
)

MatrixOption = Annotated[
    str | None, typer.Option("--matrix", metavar="FILE", help="Use this compat_matrix.yaml.")
]


@app.command(epilog=examples("cudnn-doctor matrix show", "cudnn-doctor matrix show 9.10.2 --json"))
def show(
    version: Annotated[
        str | None, typer.Argument(metavar="[VERSION]", help="One release in full, 9.10.2.")
    ] = None,
    matrix: MatrixOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print all releases, or one with the provenance of every value."""
    from cudnn_doctor.matrix.load import load
    from cudnn_doctor.matrix.query import release
    from cudnn_doctor.report.matrix import full, overview, to_json

    facts = load(matrix)
    found = release(facts, version) if version else None
    if version and found is None:
        raise DoctorError(
            f"the matrix has no cuDNN {version}",
            next_step="cudnn-doctor matrix show lists all; matrix update adds new ones",
            exit_code=ExitCode.USAGE,
        )
    if as_json:
        typer.echo(json.dumps(to_json(facts, found), indent=2))
    else:
        typer.echo(full(facts, found) if found else overview(facts))


@app.command(
    epilog=examples("cudnn-doctor matrix validate", "cudnn-doctor matrix validate my_matrix.yaml")
)
def validate(
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="Default: the matrix in use.")
    ] = None,
) -> None:
    """Check a matrix; each mistake is named by file, line and field."""
    from pathlib import Path

    from cudnn_doctor.matrix.load import chosen_path, mistakes, read

    path = Path(file) if file else chosen_path()
    found = mistakes(read(path), path.name)
    for mistake in found:
        typer.echo(mistake)
    if found:
        raise typer.Exit(int(ExitCode.BAD_INPUT))
    typer.echo(f"{path}: no mistakes")


@app.command(name="compile", epilog=examples("cudnn-doctor matrix compile my_matrix.yaml"))
def compile_(
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="Default: the matrix in use.")
    ] = None,
) -> None:
    """Write the compiled form, which loads in milliseconds."""
    from pathlib import Path

    from cudnn_doctor.matrix.compile import compile_matrix
    from cudnn_doctor.matrix.load import chosen_path

    typer.echo(compile_matrix(Path(file) if file else chosen_path()))


@app.command(
    epilog=examples("cudnn-doctor matrix update redistrib_9.29.0.json --output my_matrix.yaml")
)
def update(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A redistrib_*.json, a folder or mirror of them, or the address of either.",
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", metavar="FILE", help="Where to write the new matrix.")
    ],
    matrix: MatrixOption = None,
) -> None:
    """Add the releases and archives of NVIDIA's manifests to a copy of the matrix.

    Use the result with --matrix FILE or CUDNN_DOCTOR_MATRIX=FILE. What the
    manifests do not say (compute capabilities, drivers) stays unknown.
    """
    from pathlib import Path

    from cudnn_doctor.install.archives.redistrib import manifests
    from cudnn_doctor.matrix.compile import compile_matrix
    from cudnn_doctor.matrix.load import chosen_path, read
    from cudnn_doctor.matrix.update import merge, read_manifest

    base = Path(matrix) if matrix else chosen_path()
    text = read(base)
    if source.startswith("http://"):
        typer.echo("warning: http does not protect the hashes; prefer https", file=sys.stderr)
    found = [read_manifest(body, name) for name, body in manifests(source)]
    text, added = merge(text, base.name, found)
    target = Path(output)
    try:
        target.write_bytes(text)
    except OSError as error:
        raise NothingChanged(f"cannot write {target}: {error.strerror}") from error
    compile_matrix(target)
    for line in added or ("nothing new",):
        typer.echo(line)
    typer.echo(f"written: {target} (use it with --matrix or CUDNN_DOCTOR_MATRIX)")


@app.command(
    epilog=examples(
        "cudnn-doctor matrix inspect nvidia_cudnn_cu12.whl",
        "cudnn-doctor matrix inspect /usr/lib/x86_64-linux-gnu --json",
    )
)
def inspect(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A wheel, an archive or an unpacked folder.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_yaml: Annotated[
        bool, typer.Option("--yaml", help="Print the row for compat_matrix.yaml.")
    ] = False,
) -> None:
    """Measure what a cuDNN release contains: libraries, GPU code, headers.

    Put the row that --yaml prints below "releases:" in the matrix, then run
    cudnn-doctor matrix compile. What is packed is unpacked into TMPDIR, one
    library at a time.
    """
    from cudnn_doctor.machine.inspection import inspect as measure
    from cudnn_doctor.matrix.measured import release_of
    from cudnn_doctor.report.inspection import table, to_json, yaml_row

    if as_json and as_yaml:
        raise DoctorError("choose --json or --yaml", exit_code=ExitCode.USAGE)
    found = measure(path)
    if as_yaml:
        typer.echo(yaml_row(release_of(found)))
    elif as_json:
        typer.echo(json.dumps(to_json(found), indent=2))
    else:
        typer.echo(table(found))
