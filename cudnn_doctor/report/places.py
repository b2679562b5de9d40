"""Where to mend a finding: the line of the file that a person edits, as far as the facts tell."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from cudnn_doctor.checks.model import Finding
from cudnn_doctor.machine.model import Machine, Project, Requirement, Setting

_ALIASES = {"pytorch": "torch"}
_KINDS = ("requirement", "lock", "image")


class Place(NamedTuple):
    """A file, relative to the project's folder or absolute, and a line from 1 on."""

    path: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


def place_of(finding: Finding, machine: Machine) -> Place | None:
    """The file at fault; None where nothing but the machine itself is."""
    project = machine.project
    for evidence in finding.seen:
        if evidence.where in project.files:
            return Place(evidence.where, evidence.line)
    said = f"{finding.culprit} {finding.title}"
    variables = {setting.variable for setting in project.settings} | {"LD_LIBRARY_PATH"}
    named = {variable for variable in variables if variable in said}
    if named:
        return _setting(finding, [s for s in project.settings if s.variable in named])
    path = finding.culprit.split(" ", maxsplit=1)[0]
    if path.startswith("/") and "." in path.rpartition("/")[2]:
        return Place(path)
    return (
        _requirement(finding, project)
        or _image(finding, machine)
        or next((Place(e.where) for e in finding.seen if e.where.startswith("/")), None)
    )


def _setting(finding: Finding, settings: list[Setting]) -> Place | None:
    """The line whose value names a folder of the finding, else the only line there is."""
    text = " ".join([finding.culprit, finding.title, *(e.where for e in finding.seen)])
    folders = set(re.findall(r"/[^\s:,;'\"]+", text))
    matching = [s for s in settings if folders & {f.rstrip("/") for f in s.value.split(":")}]
    chosen = matching or (settings if len(settings) == 1 else [])
    chosen.sort(key=lambda s: s.file.startswith("/"))
    return Place(chosen[0].file, chosen[0].line) if chosen else None


def _requirement(finding: Finding, project: Project) -> Place | None:
    """The line that asks for the package which the finding names."""
    asked = sorted(
        (r for r in project.requirements if r.kind != "image"), key=lambda r: _KINDS.index(r.kind)
    )
    for text in (finding.culprit, finding.title, finding.subject, *(e.what for e in finding.seen)):
        names = set(_names(text))
        for requirement in asked:
            if _ALIASES.get(requirement.name, requirement.name) in names:
                return Place(requirement.file, requirement.line)
    return None


def _image(finding: Finding, machine: Machine) -> Place | None:
    """The base image, for what CUDA or cuDNN in an image is at fault."""
    images: list[Requirement] = [r for r in machine.project.requirements if r.kind == "image"]
    if not images or not (machine.system.container or machine.root != "/"):
        return None
    if re.search(r"cudnn|cuda\b", f"{finding.culprit} {finding.title}", re.IGNORECASE):
        return Place(images[-1].file, images[-1].line)
    return None


def _names(text: str) -> Iterable[str]:
    for word in re.findall(r"[A-Za-z][\w.-]*", text):
        name = re.sub(r"[-_.]+", "-", word).strip("-").lower()
        yield _ALIASES.get(name, name)
