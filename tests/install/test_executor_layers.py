"""Old state or new state on a real overlay, whose lower layer holds what is moved: an image."""

from __future__ import annotations

import errno
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import roots
from test_executor import Silent, a_plan, old_world, tree

from cudnn_doctor.install import executor, journal, manifest
from cudnn_doctor.install.plan import Plan, RemoveTree
from cudnn_doctor.install.state import State, exclusive

pytestmark = pytest.mark.root


def state_of(base: Path) -> State:
    return State(base / "state", base / "cache")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The old world and a used state folder, on this machine's disk: every overlay's lowest."""
    world = tmp_path / "world"
    world.mkdir()
    old_world(world)
    (world / "prefix/9.1.0/lib").chmod(0o640)
    (world / "prefix/9.1.0/link").symlink_to("lib")
    manifest.write(world / "prefix/9.1.0", {})
    os.chown(world / "prefix/9.1.0/lib", 65534, 65534)
    with exclusive(state_of(world)):
        pass
    return world


@pytest.fixture
def layers() -> Iterator[Path]:
    """A folder for uppers on another file system than the lowest: layers must not contain one
    another."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


# -- what runs inside the overlays


def look(base: Path) -> tuple[dict[str, str], list[tuple[int, int, int]], int, bool]:
    """Contents of the prefix, owners and modes, the number of receipts, whether a journal is."""
    prefix, state = base / "prefix", state_of(base)
    modes = [p.lstat() for p in sorted(prefix.rglob("*"))]
    owned = [(s.st_uid, s.st_gid, s.st_mode) for s in modes]
    return tree(prefix), owned, len(list(state.receipts.glob("*"))), state.journal.exists()


def plan_for(base: Path) -> Plan:
    """Takes a folder of the lower layer away and puts another in its place."""
    made = a_plan(base)
    again = RemoveTree(path=str(base / "prefix/modulefiles-not-there"))
    return Plan(
        **{f: getattr(made, f) for f in made.__struct_fields__} | {"steps": (*made.steps, again)}
    )


def execute(base: Path) -> None:
    executor.execute(plan_for(base), state_of(base), Silent())


def recover(base: Path) -> bool:
    with exclusive(state_of(base)):
        return executor.recover(state_of(base), Silent())


def recover_and_look(base: Path) -> object:
    recover(base)
    return look(base)


def counted(at: int) -> None:
    """Kill this process before the ``at``-th thing that it does to the disk."""
    calls = 0

    def wrap(module: object, name: str) -> None:
        real = getattr(module, name)

        def call(*args: object, **kwargs: object) -> object:
            nonlocal calls
            calls += 1
            if calls == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        setattr(module, name, call)

    for name in ("rename", "replace", "unlink", "rmdir", "mkdir", "symlink", "fsync", "chown"):
        wrap(os, name)
    wrap(journal.Journal, "note")


def execute_and_die(base: Path, at: int) -> bool:
    counted(at)
    execute(base)
    return True


def recover_and_die(base: Path, at: int) -> bool:
    counted(at)
    return recover(base)


# -- the tests


def rename_it(base: Path) -> int | None:
    try:
        os.rename(base / "prefix/9.1.0", base / "prefix/elsewhere")
    except OSError as error:
        return error.errno
    return None


def test_a_folder_of_a_lower_layer_cannot_be_renamed_here(layers: Path, base: Path) -> None:
    assert roots.inside(roots.Overlay(layers / "layer"), rename_it, base) == errno.EXDEV


def test_the_plan_is_carried_out(layers: Path, base: Path) -> None:
    layer = roots.Overlay(layers / "layer")
    roots.inside(layer, execute, base)
    found, _, receipts, unfinished = roots.inside(layer, look, base)
    assert found["current"] == "-> 9.10.2"
    assert not [name for name in found if "9.1.0" in name]
    assert (receipts, unfinished) == (1, False)


def test_a_kill_at_any_point_is_mended_in_the_next_layer(layers: Path, base: Path) -> None:
    layer = roots.Overlay(layers / "untouched")
    old = roots.inside(layer, look, base)
    roots.inside(layer, execute, base)
    new = roots.inside(layer, look, base)
    ends = []
    for at in range(1, 1000, 5):
        first = roots.Overlay(layers / f"{at}-a")
        killed = roots.result(*roots.start(first, execute_and_die, base, at)) is None
        second = roots.Overlay(layers / f"{at}-b", (first.upper,))
        now = roots.inside(second, recover_and_look, base)
        assert now in (old, new), at
        ends.append(now == new)
        if not killed:
            break
    assert ends == sorted(ends), "new, then old again"
    assert True in ends
    assert False in ends


def test_a_kill_of_the_mending_is_mended_in_a_third_layer(layers: Path, base: Path) -> None:
    layer = roots.Overlay(layers / "untouched")
    old = roots.inside(layer, look, base)
    roots.inside(layer, execute, base)
    new = roots.inside(layer, look, base)
    for at in range(40, 1000, 37):
        first = roots.Overlay(layers / f"{at}-a")
        if roots.result(*roots.start(first, execute_and_die, base, at)):
            break
        for again in range(1, 1000, 29):
            second = roots.Overlay(layers / f"{at}-{again}-b", (first.upper,))
            killed = roots.result(*roots.start(second, recover_and_die, base, again)) is None
            third = roots.Overlay(layers / f"{at}-{again}-c", (second.upper, first.upper))
            assert roots.inside(third, recover_and_look, base) in (old, new), (at, again)
            if not killed:
                break
