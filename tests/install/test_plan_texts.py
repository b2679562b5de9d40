"""Plans as people and programs read them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from cudnn_doctor.install.plan import (
    AnyStep,
    Fetch,
    MakeFolder,
    MoveTree,
    Plan,
    Prove,
    RemoveFolder,
    RemoveTree,
    Run,
    SwitchLink,
    Unpack,
    WriteFile,
)
from cudnn_doctor.report.plan import FORMATS, to_json, to_text


def plan(base: Path, *steps: object) -> Plan:
    return Plan(
        action="install",
        method="tarball",
        version="9.10.2.21",
        cuda="12",
        target=str(base),
        steps=steps,  # type: ignore[arg-type]
        reasons=("a reason " + "of many words " * 20,),
        warnings=("mind the gap",),
    )


def test_text_tells_every_path_and_command(tmp_path: Path) -> None:
    fetch = Fetch(urls=("https://example.org/a.tar.xz",), sha256="ab" * 32, name="a", size=10**9)
    steps = (
        MakeFolder(title="create it", path="/opt/x", needs_root=True),
        Unpack(title="unpack a", source=fetch, staging="/opt/x/.new"),
        WriteFile(title="write a file", path="/etc/ld.so.conf.d/x.conf", content="x"),
        SwitchLink(title="switch", path="/opt/x/current", target="9"),
        Run(title="run", argv=("ldconfig", "a b")),
    )
    text = to_text(plan(tmp_path, *steps))
    for part in ("https://example.org/a.tar.xz (1000 MB)", "/etc/ld.so.conf.d/x.conf"):
        assert part in text
    assert "/opt/x/current -> 9" in text
    assert "ldconfig 'a b'" in text
    assert "create it (as root)" in text
    assert "mind the gap" in text
    assert all(len(line) <= 80 for line in text.splitlines() if "/" not in line)


def test_a_plan_without_steps_says_so(tmp_path: Path) -> None:
    assert "Nothing is to be done." in to_text(plan(tmp_path))


def test_json_holds_the_whole_plan(tmp_path: Path) -> None:
    whole = plan(tmp_path, Run(argv=("true",)), Prove(folder="/x", version="9.1.0"))
    document = json.loads(to_json(whole))
    assert document["schema"] == 1
    assert msgspec.convert(document["plan"], type=Plan) == whole


def test_the_script_does_what_the_steps_say(tmp_path: Path) -> None:
    base = tmp_path / "a b'c"
    base.mkdir()
    (base / "old").mkdir()
    (base / "empty").mkdir()
    steps = (
        MakeFolder(path=f"{base}/x/y"),
        WriteFile(path=f"{base}/x/file", content="$HOME `id`\n'\"\\\n", mode=0o640),
        MoveTree(source=f"{base}/x", target=f"{base}/z"),
        SwitchLink(path=f"{base}/link", target="old"),
        SwitchLink(path=f"{base}/link", target="z"),
        RemoveTree(path=f"{base}/old"),
        RemoveFolder(path=f"{base}/empty"),
        RemoveFolder(path=f"{base}/z"),
        Run(argv=("sh", "-c", 'cat >"$TO"'), stdin="fed\n", environ={"TO": f"{base}/fed"}),
        Run(argv=("false",), may_fail=True),
    )
    script = FORMATS["shell"](plan(base, *steps))
    subprocess.run(["sh", "-c", script], check=True)
    assert {p.name for p in base.iterdir()} == {"z", "link", "fed"}
    assert (base / "z" / "file").read_text() == "$HOME `id`\n'\"\\\n"
    assert (base / "z" / "file").stat().st_mode & 0o777 == 0o640
    assert (base / "link").readlink() == Path("z")
    assert (base / "fed").read_text() == "fed\n"


def test_a_failing_command_ends_the_script(tmp_path: Path) -> None:
    steps = (Run(argv=("false",)), MakeFolder(path=str(tmp_path / "never")))
    script = FORMATS["shell"](plan(tmp_path, *steps))
    assert subprocess.run(["sh", "-c", script], check=False).returncode != 0
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("tool", ["sh", "bash"])
def test_the_script_is_valid_for_every_step_type(tmp_path: Path, tool: str) -> None:
    fetch = Fetch(urls=("https://a/x.whl", "https://b/x.whl"), sha256="ab" * 32, name="x.whl")
    steps = (fetch, Unpack(source=fetch, staging="/x"), Prove(folder="/x", version="9.1.0"))
    script = FORMATS["shell"](plan(tmp_path, *steps))
    subprocess.run([tool, "-n", "-c", script], check=True)


@pytest.mark.parametrize("kind", get_args(AnyStep))
def test_every_kind_of_step_can_be_printed(tmp_path: Path, kind: type) -> None:
    values: dict[str, object] = {
        "urls": ("https://example.org/x",),
        "sha256": "ab" * 32,
        "argv": ("true",),
        "names": ("nvidia",),
        "source": Fetch(urls=("https://a/x.whl",), sha256="ab" * 32, name="x.whl"),
        "manager": "apt",
    }
    if kind is MoveTree:
        values["source"] = "/from"
    fields = {
        f.name: values.get(f.name, "text") for f in msgspec.structs.fields(kind) if f.required
    }
    for format_ in FORMATS.values():
        assert format_(plan(tmp_path, kind(**fields)))


def test_what_others_named_does_nothing_to_a_terminal(tmp_path: Path) -> None:
    text = to_text(plan(tmp_path, MakeFolder(title="make \x1b]0;x\x07", path="/a\r\x9b2J")))
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "make \\x1b]0;x\\x07" in text


def test_passwords_of_mirrors_are_not_told(tmp_path: Path) -> None:
    fetch = Fetch(urls=("https://me:s3cret@mirror.example/x",), sha256="0" * 64, name="x")
    secret = plan(tmp_path, Unpack(source=fetch, staging="/s"))
    assert "s3cret" not in to_text(secret) + to_json(secret)
    assert "mirror.example/x" in to_text(secret)
