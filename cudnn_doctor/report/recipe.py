"""Plans as commands that do the same without this tool: a shell script, Dockerfile lines."""

from __future__ import annotations

import base64
import os
import shlex
import sys
from collections.abc import Callable, Iterable
from typing import Any

from cudnn_doctor.install.packages.managers import manager_named
from cudnn_doctor.install.plan import (
    AnyStep,
    Fetch,
    FetchKey,
    FromIndex,
    GuardPackages,
    GuardSystem,
    MakeFolder,
    MoveTree,
    Plan,
    Prove,
    RemoveFolder,
    RemoveTree,
    RestorePackages,
    RestoreWheels,
    Run,
    SwitchLink,
    Unpack,
    WriteFile,
)
from cudnn_doctor.install.wheels.image import venv_of

q = shlex.quote


def to_shell(plan: Plan) -> str:
    """A POSIX shell script; it stops at the first failure. It needs curl, tar, xz."""
    head = comment(f"{plan.action} cuDNN {plan.version} for CUDA {plan.cuda} ({plan.method})")
    return "\n".join(["#!/bin/sh", head, *notes(plan), *commands(plan)])


def to_dockerfile(plan: Plan) -> str:
    """Lines for a Dockerfile (BuildKit): one layer, so nothing that is fetched stays in it."""
    head = f"# cuDNN {plan.version} for CUDA {plan.cuda}; the image needs {_needs(plan)}"
    lines = ["# syntax=docker/dockerfile:1", head, *notes(plan)]
    lines += ["RUN <<'CUDNN'", *commands(plan), "CUDNN"]
    return "\n".join(lines + [f"ENV {variable}" for variable in variables(plan)])


def notes(plan: Plan) -> list[str]:
    """Comment lines for what a reader must mind."""
    return [f"# mind: {line}" for text in plan.warnings for line in text.splitlines()]


def variables(plan: Plan) -> list[str]:
    """``NAME=value`` under which the result is found and used."""
    if venv := venv_of(plan):
        return [f"VIRTUAL_ENV={q(venv)}", f"PATH={q(venv)}/bin:$PATH"]
    return [f"CUDNN_ROOT={q(plan.target)}"] if plan.method == "tarball" else []


def _needs(plan: Plan) -> str:
    """What a base image must have."""
    if venv_of(plan):
        return "python3 with venv, or apt-get, dnf, microdnf, zypper or pacman"
    if plan.method == "wheel":
        return "a pip of its own"
    return "python3 with pip" if is_from_index(plan) else "curl, tar and xz"


def is_from_index(plan: Plan) -> bool:
    """Whether a prefix is filled by pip from the package index."""
    return any(isinstance(step, FromIndex) for step in plan.steps)


def commands(plan: Plan) -> list[str]:
    """Shell lines for all steps, each with its title as a comment."""
    lines = ["set -eu"]
    for step in plan.steps:
        lines += ["", comment(step.title)] if step.title else [""]
        lines += step_commands(step)
    return lines


def comment(text: str) -> str:
    """A comment of one line, whatever names are in it."""
    return f"# {' '.join(text.split())}"


def step_commands(step: AnyStep) -> list[str]:
    """Shell lines for one step."""
    return [*_LINES[type(step)](step)]


def _fetch(step: Fetch) -> Iterable[str]:
    name = q(step.name)
    yield " || ".join(f"curl -fL --retry 5 -o {name} {q(url)}" for url in step.urls)
    yield f"echo {q(f'{step.sha256}  {step.name}')} | sha256sum -c -"


def _unpack(step: Unpack) -> Iterable[str]:
    staging, name = q(step.staging), q(step.source.name)
    yield from _fetch(step.source)
    yield f"rm -rf {staging}"
    yield f"mkdir -p {staging}"
    if step.source.name.endswith((".whl", ".zip")):
        yield f"python3 -m zipfile -e {name} {staging}"
        yield from _from_wheel(step.staging)
    else:
        kept = "" if step.members in ("static", "all") else " --exclude='*.a'"
        yield f"tar -xf {name} -C {staging} --strip-components=1 --no-same-owner{kept}"
        yield f"[ ! -d {staging}/targets ] || mv {staging}/targets/*/* {staging}"
        yield f"[ ! -d {staging}/lib64 ] || mv {staging}/lib64 {staging}/lib"
        yield f"rm -rf {staging}/targets"
        yield f'for f in {staging}/NVIDIA_SLA*; do [ ! -f "$f" ] || mv "$f" {staging}/LICENSE; done'
    yield f"rm -f {name}"
    yield from _links(step.staging)


def _from_wheel(staging: str) -> Iterable[str]:
    folder = q(staging)
    licence = "-path '*.dist-info/*' -name License.txt"
    yield f"mv {folder}/nvidia/cudnn*/include {folder}/nvidia/cudnn*/lib {folder}"
    yield f"rm -f {folder}/lib/__init__.py {folder}/include/__init__.py {folder}/.lock"
    yield f"find {folder} {licence} -exec mv {{}} {folder}/LICENSE ';'"
    yield f"rm -rf {folder}/nvidia {folder}/*.dist-info"


def _links(staging: str) -> Iterable[str]:
    """The unversioned and SONAME links, where they are not there."""
    yield f"for f in {q(staging)}/lib/lib*.so.*; do"
    yield "  stem=${f%%.so.*}.so; version=${f##*.so.}; soname=$stem.${version%%.*}"
    yield '  [ -e "$soname" ] || ln -s "${f##*/}" "$soname"'
    yield '  [ -e "$stem" ] || ln -s "${soname##*/}" "$stem"'
    yield "done"


def _from_index(step: FromIndex) -> Iterable[str]:
    staging, index = q(step.staging), q(f"{step.staging}.index")
    yield f"rm -rf {staging} {index}"
    yield f"echo {q(step.requirement)} | {_portable(step.argv)}"
    yield f"mv {index} {staging}"
    yield from _from_wheel(step.staging)
    yield from _links(step.staging)


def _portable(argv: Iterable[str]) -> str:
    """A command that names no interpreter of this machine."""
    return shlex.join("python3" if word == sys.executable else word for word in argv)


def _write_file(step: WriteFile) -> Iterable[str]:
    end = "CUDNN_DOCTOR_END"
    yield f"{'base64 -d' if step.raw else 'cat'} >{q(step.path)} <<'{end}'"
    yield base64.b64encode(step.raw).decode() or step.content.removesuffix("\n")
    yield end
    if step.mode != 0o644:
        yield f"chmod {step.mode:o} {q(step.path)}"


def _run(step: Run) -> Iterable[str]:
    if step.quiet:
        yield ":"
        return
    if step == Run(title=step.title, argv=("sh", "-c", step.argv[-1]), needs_root=step.needs_root):
        yield from step.argv[-1].splitlines()
        return
    names = [f"{name}={q(value)}" for name, value in step.environ.items()]
    fed = f"printf %s {q(step.stdin)} | " if step.stdin else ""
    yield fed + " ".join([*names, shlex.join(step.argv)]) + (" || true" if step.may_fail else "")


def _restore_packages(step: RestorePackages) -> Iterable[str]:
    manager = manager_named(step.manager)
    for argv in manager.restore(step.packages, step.remove, {}):
        yield shlex.join(argv)


def _fetch_key(step: FetchKey) -> Iterable[str]:
    """The key, refused unless its primary key has the fingerprint; needs gpg."""
    path = q(step.path)
    yield " || ".join(f"curl -fL --retry 5 -o {path} {q(url)}" for url in step.urls)
    found = f"gpg --show-keys --with-colons {path} | awk -F: '/^fpr:/ {{ print $10; exit }}'"
    yield f'[ "$({found})" = {q(step.fingerprint)} ] || {{ rm -f {path}; exit 1; }}'


def _prove(step: Prove) -> Iterable[str]:
    if step.listing:
        yield f"{shlex.join(step.listing)} | grep -q /libcudnn.so."
        return
    for soname in step.sonames:
        yield f"test -s {q(os.path.join(step.folder, soname))}"


_LINES: dict[type[Any], Callable[[Any], Iterable[str]]] = {
    Fetch: _fetch,
    FetchKey: _fetch_key,
    Unpack: _unpack,
    FromIndex: _from_index,
    MakeFolder: lambda step: [f"mkdir -p {q(step.path)}"],
    MoveTree: lambda step: [f"mv {q(step.source)} {q(step.target)}"],
    RemoveTree: lambda step: [f"rm -rf {q(step.path)}"],
    RemoveFolder: lambda step: [f"rmdir {q(step.path)} 2>/dev/null || true"],
    WriteFile: _write_file,
    SwitchLink: lambda step: [
        f"ln -sfn {q(step.target)} {q(step.path)}" if step.target else f"rm -f {q(step.path)}"
    ],
    GuardPackages: lambda step: [": # cudnn-doctor would keep the old files until this is done"],
    GuardSystem: lambda step: [": # cudnn-doctor would remember the packages until this is done"],
    RestorePackages: _restore_packages,
    RestoreWheels: lambda step: [f"cp -a {q(step.store)}/. {q(step.site_packages)}"],
    Run: _run,
    Prove: _prove,
}
