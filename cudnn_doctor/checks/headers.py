"""Rules about building against cuDNN: headers, unversioned names, CMake's variables."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import msgspec

from cudnn_doctor.checks.context import Context, file_of, folder_of, parse, same_release
from cudnn_doctor.checks.files import restore
from cudnn_doctor.checks.model import Evidence, Finding, Links, Remedy
from cudnn_doctor.checks.registry import Skip, rule
from cudnn_doctor.machine.model import CudnnCopy, Header

_INCLUDE_VARIABLES = ("CUDNN_INCLUDE_DIR", "CUDNN_INCLUDE_PATH")
_FOLDER_VARIABLES = (
    "CUDNN_ROOT",
    "CUDNN_ROOT_DIR",
    "CUDNN_PATH",
    "CUDNN_HOME",
    *_INCLUDE_VARIABLES,
)
_LIBRARY_VARIABLES = ("CUDNN_LIBRARY", "CUDNN_LIBRARIES")
_BASES = ("lib64", "lib", "include")


def base_of(folder: str) -> str:
    """The prefix that ``lib``, ``lib64``, ``include`` or a multiarch folder belongs to."""
    parts = folder.rstrip("/").split("/")
    cut = max((i for i, part in enumerate(parts) if part in _BASES), default=len(parts))
    return "/".join(parts[:cut]) or "/"


@rule("header-library-mismatch", "cudnn")
def header_library_mismatch(context: Context) -> Iterator[Finding]:
    """The headers beside a library are of another release."""
    headers = [h for h in context.machine.headers if h.version]
    if not headers:
        raise Skip("no cuDNN headers are known")
    beside_of = _copies_by_prefix(context)
    for header in headers:
        base = base_of(folder_of(header.path) if header.path.endswith(".h") else header.path)
        beside = beside_of.get(base, [])
        if not beside or any(same_release(c.version, header.version) for c in beside):
            continue
        yield _mismatch(context, header, beside[0])


def _copies_by_prefix(context: Context) -> dict[str, list[CudnnCopy]]:
    """Prefix -> the copies of known version in it, those that its links lead to included."""
    reached: dict[str, set[str]] = {}
    for path, library in context.libraries.items():
        if library.real:
            reached.setdefault(folder_of(library.real), set()).add(folder_of(path))
    found: dict[str, list[CudnnCopy]] = {}
    for copy in context.copies:
        if copy.version and not copy.private:
            for base in {base_of(f) for f in (copy.folder, *reached.get(copy.folder, ()))}:
                found.setdefault(base, []).append(copy)
    return found


def _mismatch(context: Context, header: Header, copy: CudnnCopy) -> Finding:
    return Finding(
        id="header-library-mismatch",
        severity="error",
        title=f"headers of cuDNN {header.version} beside libraries of {copy.version}",
        culprit=header.path,
        subject=copy.folder,
        seen=(
            Evidence(what=f"CUDNN_VERSION {header.version}", where=header.path, how="header"),
            Evidence(what=f"library {copy.version}", where=copy.folder, how=copy.version_from),
        ),
        why="whatever is compiled there takes the header's version as the truth and calls the"
        " library by it: the build or the first call fails.",
        remedies=(restore(context, copy.folder),),
    )


@rule("header-library-mismatch", "cudnn")
def header_elsewhere(context: Context) -> Iterator[Finding]:
    """The active conda environment has a cuDNN without headers, and others' are found instead."""
    headers = [h for h in context.machine.headers if parse(h.version)]
    for environment in context.machine.environments:
        if environment.kind != "conda" or not environment.active:
            continue
        own = [h for h in headers if h.path.startswith(f"{environment.prefix}/")]
        for copy in context.copies:
            version = parse(copy.version)
            inside = copy.kind == "conda" and copy.environment == environment.prefix
            if not inside or own or version is None or not headers:
                continue
            found = parse(headers[0].version)
            if found is not None and found.major != version.major:
                mismatch = _mismatch(context, headers[0], copy)
                yield msgspec.structs.replace(mismatch, severity="warning")


@rule("dev-headers-wrong-path", "cudnn")
def headers_wrong_path(context: Context) -> Iterator[Finding]:
    """A build variable names a folder without cuDNN's headers, which lie elsewhere."""
    headers = [h.path for h in context.machine.headers]
    for name in _INCLUDE_VARIABLES:
        value = context.machine.environ.get(name, "").rstrip("/")
        folders = {folder_of(path) if path.endswith(".h") else path for path in headers}
        if not value or not folders or value in folders:
            continue
        right = sorted(folders)[0]
        yield Finding(
            id="dev-headers-wrong-path",
            severity="warning",
            title=f"{name} is {value}, cuDNN's headers are in {right}",
            culprit=name,
            seen=(
                Evidence(what=f"{name}={value}", how="environment"),
                Evidence(what="cudnn_version.h", where=right),
            ),
            why="CMake finds no cudnn_version.h there and turns cuDNN off or stops.",
            remedies=(Remedy(title="name the right folder", commands=(f"export {name}={right}",)),),
        )


@rule("cmake-variable-wrong", "cudnn")
def cmake_variable_wrong(context: Context) -> Iterator[Finding]:
    """A folder is given where a file is wanted, or the reverse."""
    environ = context.machine.environ
    for name in (*_FOLDER_VARIABLES, *_LIBRARY_VARIABLES):
        value = environ.get(name, "").rstrip("/")
        if not value:
            continue
        is_file = ".so" in file_of(value) or value.endswith((".h", ".a"))
        wants_file = name in _LIBRARY_VARIABLES
        if is_file == wants_file:
            continue
        kind = "the library file" if wants_file else "a folder"
        better = f"{value}/libcudnn.so" if wants_file else folder_of(value)
        yield Finding(
            id="cmake-variable-wrong",
            severity="warning",
            title=f"{name} wants {kind}, it is {value}",
            culprit=name,
            seen=(Evidence(what=f"{name}={value}", how="environment"),),
            why="CMake's find module takes the value as it is and fails to configure or to link.",
            remedies=(Remedy(title=f"give {kind}", commands=(f"export {name}={better}",)),),
        )


@rule("wheel-no-unversioned-so", "cudnn")
def wheel_no_unversioned_so(context: Context) -> Iterator[Finding]:
    """A build variable leads into a wheel, which holds no ``libcudnn.so``."""
    for name in _FOLDER_VARIABLES:
        value = context.machine.environ.get(name, "").rstrip("/")
        for copy in context.copies:
            inside = bool(value) and f"{copy.folder}/".startswith(f"{value}/")
            if not inside or not copy.shim or "libcudnn.so" in copy.files:
                continue
            target = f"{copy.folder}/{copy.shim}"
            yield Finding(
                id="wheel-no-unversioned-so",
                severity="warning",
                title=f"{name} leads to {copy.folder}, which has no libcudnn.so",
                culprit=f"{copy.folder}/libcudnn.so",
                subject=copy.folder,
                seen=(
                    Evidence(what=f"{name}={value}", how="environment"),
                    Evidence(what=f"only {copy.shim}", where=copy.folder, how="directory listing"),
                ),
                why="wheels ship only the versioned name; -lcudnn, find_library and"
                " dlopen('libcudnn.so') look for the other one.",
                remedies=(
                    Remedy(
                        title="give the build the file itself",
                        commands=(
                            f"cmake -DCUDNN_LIBRARY={target} -DCUDNN_LIBRARY_PATH={target} .",
                        ),
                        changes="nothing on disk",
                    ),
                    Remedy(
                        title="or make the name in the wheel's folder",
                        commands=(f"ln -s {copy.shim} {shlex.quote(copy.folder)}/libcudnn.so",),
                        changes="one link",
                        automatic=True,
                        action=Links(links={f"{copy.folder}/libcudnn.so": copy.shim}),
                    ),
                ),
            )
