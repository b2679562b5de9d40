"""Odd facts never crash a rule: every string and number of a machine may be anything."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from check_builders import MATRIX, SYSTEM, healthy, with_copy

from cudnn_doctor.checks.run import run_checks
from cudnn_doctor.machine.model import Machine

ODD = (
    "",
    "x",
    "9",
    "9.",
    "9.10.2.21",
    "-1",
    "/",
    "//",
    ":",
    "\N{SNOWMAN}",
    "1e9",
    "None",
    "9.x",
    "+",
)

CLOSED = ("status", "kind", "libc", "problem", "flavour", "elf_class", "size")
"""Fields of a closed set of values: another one is refused when a snapshot is read."""


def mutate(value: Any, dice: random.Random, rate: float) -> Any:
    """A copy with some strings and numbers replaced and some fields gone."""
    if isinstance(value, dict):
        return {
            key: item if key in CLOSED else mutate(item, dice, rate)
            for key, item in value.items()
            if dice.random() > rate
            or key
            in (
                "path",
                "folder",
                "prefix",
                "name",
                "version",
                "soname",
                "address",
                "kind",
                "url",
                "manager",
                "problem",
            )
        }
    if isinstance(value, (list, tuple)):
        return [mutate(item, dice, rate) for item in value if dice.random() > rate]
    if isinstance(value, bool) or dice.random() > rate:
        return value
    return dice.choice(ODD) if isinstance(value, str) else dice.choice((0, 1, 1 << 40))


@pytest.mark.parametrize("seed", range(40))
def test_rules_survive_odd_facts(seed: int) -> None:
    dice = random.Random(seed)
    base = with_copy(healthy("9.19.0"), SYSTEM, "9.14.0", cached=True, kind="system")
    base = msgspec.structs.replace(base, environ={"LD_LIBRARY_PATH": SYSTEM})
    raw = mutate(msgspec.to_builtins(base), dice, 0.15)
    raw["partial"] = seed % 2 == 0
    machine = msgspec.convert(raw, Machine)
    crashed = [
        (r.rule, r.reason) for r in run_checks(machine, MATRIX).results if r.status == "crash"
    ]
    assert crashed == []
