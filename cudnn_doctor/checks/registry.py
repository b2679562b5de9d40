"""The ordered list of rules: a rule is one small function, declared with `rule`.

Adding a rule is writing one generator function in one of `RULE_MODULES`; nothing else.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cudnn_doctor.checks.context import Context
    from cudnn_doctor.checks.model import Finding

CATEGORIES = ("system", "gpu", "toolkit", "cudnn", "frameworks", "packages")
"""In the order in which they are judged and shown."""

RULE_MODULES = (
    "system",
    "disk",
    "driver",
    "devices",
    "containers",
    "gpu",
    "builds",
    "libcuda",
    "cuda",
    "files",
    "copies",
    "wheels",
    "headers",
    "loading",
    "needs",
    "mixing",
    "frameworks",
    "releases",
    "packages",
)

NOT_SHOWN = {
    "benign-noise": "is about a message, not about a state",
    "insufficient-evidence": "is about a log",
    "static-tls": "depends on the order in which a process loads libraries",
    "tf-memory-growth": "is what a running TensorFlow does",
    "cudnn-feature-unsupported-on-gpu": "depends on the operation that is asked for",
    "cudnn-heuristic-regression": "shows only in measured rates",
    "download-corrupt": "is gone with the download; what it leaves is a damaged or missing file",
    "index-lacks-pinned-version": "the check asks no index",
    "network-blocked": "the check opens no socket",
    "toolkit-config-no-cgroups": "the file lies on the host; cgroup-device-revoked names it",
}
"""Diagnoses of the vocabulary that no state of a machine shows, and why: `explain` makes them."""

Function = Callable[["Context"], "Iterator[Finding]"]


class Skip(Exception):
    """Raised by a rule whose facts are missing; the text says which."""


class Rule(NamedTuple):
    """One declared rule."""

    id: str
    """Id of the diagnosis it makes (the main one, if it tells several apart)."""
    category: str
    function: Function
    also: tuple[str, ...] = ()
    """Further ids of diagnoses that it can make."""
    gpu: bool = False
    """Judges the GPU or its driver: skipped where no GPU is meant to be there."""

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids that it can report."""
        return (self.id, *self.also)


_declared: list[Rule] = []


def rule(
    id: str, category: str, *, also: tuple[str, ...] = (), gpu: bool = False
) -> Callable[[Function], Function]:
    """Declare the decorated function as a rule."""
    if category not in CATEGORIES:
        raise ValueError(f"unknown category {category!r}")

    def declare(function: Function) -> Function:
        _declared.append(Rule(id, category, function, also, gpu))
        return function

    return declare


@functools.cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, by category, then in declared order."""
    for module in RULE_MODULES:
        importlib.import_module(f"cudnn_doctor.checks.{module}")
    return tuple(sorted(_declared, key=lambda declared: CATEGORIES.index(declared.category)))


def known_ids() -> frozenset[str]:
    """Ids of all diagnoses that some rule can make."""
    return frozenset(id for declared in all_rules() for id in declared.ids)
