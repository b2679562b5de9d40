"""Files fetched ahead: ``download`` for an offline machine, and the ``cache``."""

from __future__ import annotations

import json
import shlex
from enum import Enum
from typing import Annotated

import typer

from cudnn_doctor.cli import apply as ap
from cudnn_doctor.cli import install as inst
from cudnn_doctor.cli import target_options as opts
from cudnn_doctor.cli.lazy import examples
from cudnn_doctor.errors import DoctorError, ExitCode


class DownloadSource(str, Enum):
    """What is fetched."""

    archive = "archive"
    wheel = "wheel"


cache = typer.Typer(
    help="See or empty the download cache.",
    epilog=examples("cudnn-doctor cache list", "cudnn-doctor cache clear"),
    no_args_is_help=True,
    rich_markup_mode="rich",
)


def download(
    *,
    dest: Annotated[str, typer.Option("--dest", metavar="DIR", help="Where to put it.")] = ".",
    version: opts.Version = None,
    cuda: opts.Cuda = None,
    wanted: opts.Wanted = None,
    gpu: opts.Gpu = None,
    driver: opts.Driver = None,
    arch: opts.Arch = None,
    glibc: opts.Glibc = None,
    no_gpu: opts.NoGpu = False,
    flavour: opts.Flavour = opts.FlavourName.full,
    source: Annotated[
        DownloadSource, typer.Option("--source", help="NVIDIA's archive, or the wheel.")
    ] = DownloadSource.archive,
    mirror: inst.Mirror = None,
    lock: Annotated[
        str | None, typer.Option("--lock", metavar="FILE", help="Exactly what this lock names.")
    ] = None,
    matrix: opts.MatrixFile = None,
    as_json: ap.AsJson = False,
) -> None:
    """Fetch NVIDIA's archive, or the wheel, for an offline machine, checked by its SHA-256."""
    from cudnn_doctor.install.ahead import fetch_ahead, request_of
    from cudnn_doctor.install.choose import Wish, settle
    from cudnn_doctor.install.lock import read
    from cudnn_doctor.install.state import exclusive, locate
    from cudnn_doctor.matrix.load import load
    from cudnn_doctor.report.progress import progress

    facts = load(matrix)
    options = opts.TargetOptions(
        gpu=gpu,
        driver=driver,
        cuda=cuda,
        arch=arch,
        glibc=glibc,
        wanted=wanted,
        version=version,
        flavour=flavour.value,
        no_gpu=no_gpu,
    )
    wish = Wish(method="tarball", source=source.value, mirrors=tuple(mirror or ()))
    if lock and (version or cuda or wanted or source is not DownloadSource.archive):
        raise DoctorError(
            "--lock names version, CUDA and source already",
            next_step="leave --version, --cuda, --for and --source out",
            exit_code=ExitCode.USAGE,
        )
    if lock:
        request = request_of(read(lock), wish, facts)
    else:
        request = settle(wish, opts.build_target(options, facts), facts, opts.this_machine)
    with exclusive(locate()):
        path = fetch_ahead(request, facts, dest, locate(), progress())
    if as_json:
        typer.echo(json.dumps({"schema": 1, "file": str(path), "version": request.version}))
    else:
        typer.echo(f"{path}\nThere: cudnn-doctor install --archive {shlex.quote(path.name)}")


@cache.command("list", epilog=examples("cudnn-doctor cache list --json"))
def cache_list(as_json: ap.AsJson = False) -> None:
    """List the cached files: size in bytes and SHA-256."""
    from cudnn_doctor.install.archives.download import cached_files
    from cudnn_doctor.install.state import locate

    files = cached_files(locate())
    if as_json:
        entries = [{"file": path.name, "size": size} for path, size in files]
        typer.echo(json.dumps({"schema": 1, "files": entries}))
        return
    for path, size in files:
        typer.echo(f"{size:13,} {path.name}")
    typer.echo(f"{sum(size for _, size in files):13,} bytes in {locate().cache}")


@cache.command("clear", epilog=examples("cudnn-doctor cache clear"))
def cache_clear() -> None:
    """Remove all cached files, finished or not, and what was set aside for a rollback."""
    from cudnn_doctor.errors import NothingChanged
    from cudnn_doctor.install.archives.download import cached_files
    from cudnn_doctor.install.files import finish_remove_folder
    from cudnn_doctor.install.folders import discard
    from cudnn_doctor.install.plan import RemoveFolder
    from cudnn_doctor.install.receipts import set_aside
    from cudnn_doctor.install.state import exclusive, locate

    with exclusive(locate()):
        files, aside = cached_files(locate()), set_aside(locate())
        for path, _ in (*files, *aside):
            try:
                discard(str(path))
            except OSError as error:
                raise NothingChanged(
                    f"cannot remove it: {error.strerror}",
                    where=str(path),
                    next_step="make it writable, then clear again; what was before it is removed",
                ) from error
        for path, _ in aside:
            finish_remove_folder(RemoveFolder(path=str(path.parent)))
    freed = sum(size for _, size in (*files, *aside))
    typer.echo(f"Removed {len(files)} files and {len(aside)} folders, {freed:,} bytes.")
