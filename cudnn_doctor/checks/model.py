"""What a rule says: findings with evidence and remedies."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Severity = Literal["error", "warning", "info"]
Safety = Literal["safe", "caution", "destructive"]
Status = Literal["pass", "warn", "fail", "skip", "crash"]


class Wheels(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="wheels"):
    """Packages of one Python environment are taken out, then put in."""

    environment: str
    """Its prefix."""
    drop: tuple[str, ...] = ()
    """Distributions to uninstall first."""
    put: tuple[str, ...] = ()
    """Requirements to install."""
    again: bool = False
    """Whole and alone, even where that version is there already."""


class SearchPath(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="search-path"):
    """Folders are taken out of LD_LIBRARY_PATH or put in front of it, for one environment."""

    drop: tuple[str, ...] = ()
    add: tuple[str, ...] = ()


class Links(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="links"):
    """Symbolic links in one folder are made, or taken away where the target is empty."""

    links: dict[str, str]
    """Path of the link -> its target."""


Action: TypeAlias = Wheels | SearchPath | Links


class Remedy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One way to mend it: exact commands for this machine."""

    title: str
    commands: tuple[str, ...] = ()
    """Shell lines, copy-pasteable, in order."""
    needs_root: bool = False
    changes: str = ""
    """What it changes, in words."""
    safety: Safety = "safe"
    automatic: bool = False
    """Whether ``cudnn-doctor fix`` can carry it out."""
    action: Action | None = None
    """What it does, for ``fix``; the commands are the same for people."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was seen: the path or name, the value, how it was read."""

    what: str
    where: str = ""
    how: str = ""
    line: int | None = None
    """Line number, for evidence from a log."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fault (or note) with its evidence and its cure."""

    id: str
    """From the vocabulary of diagnoses; never renamed once released."""
    severity: Severity
    title: str
    """One line, under 100 characters, naming the culprit."""
    culprit: str = ""
    """The file, package, variable or version at fault."""
    seen: tuple[Evidence, ...] = ()
    why: str = ""
    """Why it matters, in a sentence or two."""
    remedies: tuple[Remedy, ...] = ()
    avoid: tuple[str, ...] = ()
    """Folklore that makes it worse."""
    subject: str = ""
    """What suffers: framework and environment, folder, or empty for the machine."""
    caused_by: str = ""
    """Id of the finding that is this one's root cause, if another is."""
    suppressed: str = ""
    """Reason and expiry date where the user lowered this finding to a note."""


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Outcome of one rule."""

    rule: str
    category: str
    status: Status
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    """Why it was skipped, or how it crashed."""


class FrameworkLoad(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which cuDNN one framework gets."""

    framework: str
    version: str = ""
    environment: str = ""
    cudnn: str | None = None
    """The version that it would be told by cudnnGetVersion."""
    mixed_with: tuple[str, ...] = ()
    """Other versions among the parts that it would load."""
    folder: str | None = None
    """Where that part lies."""
    because: str = ""
    certain: bool = True


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All results of one run, in declared order."""

    results: tuple[CheckResult, ...] = ()
    loads: tuple[FrameworkLoad, ...] = ()
    """What each framework gets, in the machine's order."""
    seconds: float = 0.0
    """Time that the rules took."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings: root causes before consequences, errors first, then in declared order."""
        order = {"error": 0, "warning": 1, "info": 2}
        found = [finding for result in self.results for finding in result.findings]
        return tuple(sorted(found, key=lambda f: (order[f.severity], bool(f.caused_by))))

    @property
    def worst(self) -> Severity | None:
        """The highest severity found; None for a clean machine."""
        return next((finding.severity for finding in self.findings), None)

    @property
    def judged(self) -> bool:
        """Whether any rule had the facts to say something."""
        return any(result.status not in ("skip", "crash") for result in self.results)
