"""What the resolver answers: a resolution, or a conflict."""

from __future__ import annotations

import msgspec

from cudnn_doctor.matrix.packages import ArchiveAnswer


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """What one constraint said."""

    constraint: str
    why: str


class RuledOut(msgspec.Struct, frozen=True, kw_only=True):
    """A release newer than the answer and what ruled it out."""

    version: str
    cuda: str
    by: tuple[Reason, ...]


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """The answer."""

    version: str
    build: str
    cuda: str
    """CUDA major."""
    flavour: str
    certain: bool
    """False when something that the target demands is not known of this release."""
    driver: str | None
    """Lowest driver that it needs."""
    packages: dict[str, list[str]]
    """Per way to install (``wheel``, ``tarball``, ``apt``, ``dnf`` ...), cuDNN first."""
    archive: ArchiveAnswer | None
    commands: dict[str, list[str]]
    frameworks: dict[str, str]
    """Per requested framework, the build of it that the answer suits."""
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()
    newer: tuple[RuledOut, ...] = ()
    """Newest first."""


class Relaxation(msgspec.Struct, frozen=True, kw_only=True):
    """Constraints to lift together, and the answer that this would give."""

    constraints: tuple[str, ...]
    how: tuple[str, ...]
    version: str
    build: str
    cuda: str


class Conflict(msgspec.Struct, frozen=True, kw_only=True):
    """No answer: the smallest set of constraints that clash, and what lifting them would give."""

    constraints: tuple[str, ...]
    why: tuple[Reason, ...]
    relax: tuple[Relaxation, ...]
    notes: tuple[str, ...] = ()
