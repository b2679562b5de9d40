"""Files that this tool did not put there are neither removed nor replaced; edited ones are kept."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from conftest import Redist
from support.cli import Cli, tree

from cudnn_doctor.install.plan import Plan, RemoveTree
from cudnn_doctor.install.prefixes import layout, ours

Install = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return tmp_path / "p"


@pytest.fixture
def install(cli: Cli, redist_tree: Redist, prefix: Path) -> Install:
    """Install a release into the prefix."""

    def run(version: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        what = ("--version", version, "--cuda", "12", "--arch", "x86_64", "--source", "archive")
        where = ("--matrix", redist_tree.matrix, "--mirror", str(redist_tree.root))
        return cli("install", *what, *where, "--prefix", prefix, "--yes", code=code)

    return run


def put_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "mine").write_text("mine")


def put_file(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.write_text("mine")


def put_link(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("usr/lib")


STRANGERS = [
    ("env.sh", put_file),
    ("env.sh", put_folder),
    ("env.sh", put_link),
    ("env.sh", os.mkfifo),
    ("current", put_file),
    ("current", put_link),
    ("include", put_link),
    ("include", put_folder),
    ("lib", put_link),
    ("modulefiles/cudnn/9.10.2-cuda12", put_file),
]


@pytest.mark.parametrize(("name", "put"), STRANGERS)
def test_an_installation_replaces_nothing_of_others(
    install: Install, cli: Cli, prefix: Path, name: str, put: Callable[[Path], None]
) -> None:
    (prefix / name).parent.mkdir(parents=True)
    put(prefix / name)
    before = [(p, p.lstat().st_ino) for p in sorted(prefix.rglob("*"))]
    refused = install("9.10.2", code=5).stderr
    assert "not this tool's" in refused and str(prefix / name) in refused and "next: " in refused
    assert [(p, p.lstat().st_ino) for p in sorted(prefix.rglob("*"))] == before


@pytest.mark.parametrize("command", ["rollback", "uninstall"])
@pytest.mark.parametrize("name", ["include", "lib", "env.sh", "current"])
def test_what_others_put_in_our_place_stays(
    install: Install, cli: Cli, prefix: Path, name: str, command: str
) -> None:
    install("9.10.2")
    put_folder(prefix / name)
    args = ("9.10.2", "--prefix", str(prefix)) if command == "uninstall" else ()
    done = cli(command, *args, "--yes")
    assert f"{prefix / name} is not this tool's: it stays" in " ".join(done.stdout.split())
    assert (prefix / name / "mine").read_text() == "mine"
    assert not (prefix / "9.10.2-cuda12").exists()


@pytest.mark.parametrize("command", ["rollback", "uninstall", "repair"])
def test_a_version_with_files_of_others_stays(
    install: Install, cli: Cli, prefix: Path, command: str
) -> None:
    install("9.10.2")
    (prefix / "9.10.2-cuda12/lib/mine.txt").write_text("mine")
    (prefix / "9.10.2-cuda12/more").symlink_to("lib")
    if command == "repair":
        (prefix / "9.10.2-cuda12/LICENSE").write_text("damage")
    before = tree(prefix)
    args = ("9.10.2", "--prefix", str(prefix)) if command == "uninstall" else ()
    refused = cli(command, *args, "--yes", code=5).stderr
    assert "lib/mine.txt, more" in refused and "next: move it away" in refused
    assert tree(prefix) == before
    (prefix / "9.10.2-cuda12/lib/mine.txt").unlink()
    (prefix / "9.10.2-cuda12/more").unlink()
    cli(command, *args, "--yes")


@pytest.mark.parametrize("command", ["rollback", "uninstall"])
def test_edited_files_are_told_and_kept(
    install: Install, cli: Cli, prefix: Path, command: str, tmp_path: Path
) -> None:
    install("9.10.2")
    (prefix / "9.10.2-cuda12/include/cudnn.h").write_text("edited")
    with (prefix / "env.sh").open("a") as script:
        script.write("export MINE=1\n")
    args = ("9.10.2", "--prefix", str(prefix)) if command == "uninstall" else ()
    said = " ".join(cli(command, *args, "--yes").stdout.split())
    assert "include/cudnn.h was changed; it is set aside" in said
    assert f"{prefix / 'env.sh'} was changed since" in said
    kept = prefix / ".9.10.2-cuda12.cudnn-doctor-kept"
    assert (kept / "include/cudnn.h").read_text() == "edited"
    newest = max((tmp_path / "state/receipts").iterdir())
    assert any("MINE=1" in p.read_text() for p in newest.glob("saved/*/old"))


def test_an_edited_script_is_told_and_comes_back(install: Install, cli: Cli, prefix: Path) -> None:
    install("9.10.2")
    script = prefix / "env.sh"
    edited = script.read_bytes() + b"export MINE='\xe9'\n"
    script.write_bytes(edited)
    assert "was changed since" in " ".join(install("9.1.0").stdout.split())
    assert script.read_bytes() != edited
    cli("rollback", "--yes")
    assert script.read_bytes() == edited


def test_a_pipe_in_a_version_is_never_read(install: Install, cli: Cli, prefix: Path) -> None:
    install("9.10.2")
    os.mkfifo(prefix / "9.10.2-cuda12/lib/pipe")
    install("9.10.2")
    assert "lie in it: lib/pipe" in cli("rollback", "--yes", code=5).stderr
    (prefix / "9.10.2-cuda12/lib/pipe").unlink()
    (prefix / "9.10.2-cuda12/LICENSE").unlink()
    os.mkfifo(prefix / "9.10.2-cuda12/LICENSE")
    cli("repair", "--yes")
    assert (prefix / "9.10.2-cuda12/LICENSE").is_file()


def test_a_version_whose_manifest_is_none_is_set_aside(
    install: Install, cli: Cli, prefix: Path
) -> None:
    install("9.10.2")
    manifest = prefix / "9.10.2-cuda12/.cudnn-doctor.json"
    manifest.unlink()
    os.mkfifo(manifest)
    assert "damaged" in install("9.10.2", code=5).stderr
    cli("repair", "--yes")
    assert "it is set aside" in " ".join(cli("rollback", "--yes").stdout.split())
    assert (prefix / ".9.10.2-cuda12.cudnn-doctor-kept/lib").is_dir()


@pytest.mark.parametrize(
    "given",
    ["", " ", "a\nb", "a\x1b[31m", "a:b", "x" * 300, "y/" * 2500, "/", "//", "/usr/"],
)
@pytest.mark.parametrize("command", ["install", "list", "use 9.10.2", "uninstall 9.10.2", "repair"])
def test_a_prefix_that_none_can_be(cli: Cli, command: str, given: str) -> None:
    refused = cli(*command.split(), "--prefix", given, code=2).stderr
    assert "prefix" in refused and "\x1b" not in refused and "Traceback" not in refused


def test_a_tilde_is_the_home(cli: Cli, install: Install, redist_tree: Redist) -> None:
    what = ("--version", "9.10.2", "--cuda", "12", "--arch", "x86_64", "--source", "archive")
    where = ("--matrix", redist_tree.matrix, "--mirror", str(redist_tree.root))
    cli("install", *what, *where, "--prefix", "~/cudnn", "--yes")
    assert (cli.base / "home/cudnn/current").is_symlink()
    assert "9.10.2-cuda12" in cli("list", "--prefix", "~/cudnn").stdout


def test_what_another_user_made_current_keeps_its_links(
    cli: Cli, install: Install, prefix: Path, tmp_path: Path
) -> None:
    install("9.1.0")
    cli.environ["CUDNN_DOCTOR_STATE"] = str(tmp_path / "another")
    install("9.10.2")
    before = tree(prefix)
    cli.environ["CUDNN_DOCTOR_STATE"] = str(tmp_path / "state")
    refused = cli("rollback", "--yes", code=5).stderr
    assert "9.10.2-cuda12 is current by now" in refused
    assert tree(prefix) == before
    cli("uninstall", "9.1.0-cuda12", "--prefix", prefix, "--yes")
    assert (prefix / "current").resolve().name == "9.10.2-cuda12"
    assert not (prefix / "9.1.0-cuda12").exists()


def test_no_link_leads_out_of_the_prefix(install: Install, prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").mkdir()
    prefix.mkdir()
    (prefix / "modulefiles").symlink_to(tmp_path / "victim")
    assert "leads out of the prefix" in install("9.10.2", code=5).stderr
    assert not list((tmp_path / "victim").iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="is said to root alone")
def test_a_prefix_that_all_may_write_is_told(install: Install, prefix: Path) -> None:
    prefix.mkdir()
    prefix.chmod(0o777)
    assert "everybody may write into" in " ".join(install("9.10.2").stdout.split())


def test_a_staging_folder_of_others_stays(install: Install, prefix: Path) -> None:
    staging = prefix / ".9.10.2-cuda12.new"
    staging.mkdir(parents=True)
    (staging / "mine").write_text("mine")
    assert "already there" in install("9.10.2", code=5).stderr
    assert (staging / "mine").read_text() == "mine"


@pytest.mark.parametrize("streams", ["stdout", "stderr", "both"])
def test_a_reader_that_goes_away_decides_nothing(
    cli: Cli, redist_tree: Redist, prefix: Path, streams: str
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    out = writing if streams != "stderr" else subprocess.DEVNULL
    err = writing if streams != "stdout" else subprocess.DEVNULL
    what = ("--version", "9.10.2", "--cuda", "12", "--arch", "x86_64", "--source", "archive")
    where = ("--matrix", redist_tree.matrix, "--mirror", redist_tree.root, "--prefix", prefix)
    argv = cli.command("install", *what, *where, "--yes")
    done = subprocess.run(argv, env=cli.environ, stdout=out, stderr=err, check=False, timeout=120)
    os.close(writing)
    assert done.returncode == 0
    assert (prefix / "current").is_symlink()


def test_what_an_administrator_told_the_loader_besides_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = tmp_path / "cudnn-doctor.conf"
    monkeypatch.setattr(layout, "CONF", str(conf))
    step = RemoveTree(path=str(conf))
    plan = Plan(action="uninstall", method="tarball", version="9.10.2", cuda="12", target="/opt/c")
    plan = msgspec.structs.replace(plan, steps=(step,))
    conf.write_text("/opt/c/current/lib\n")
    assert ours.settled(plan).warnings == ()
    conf.write_text("/opt/c/current/lib\n/srv/lib\n")
    assert "was changed since" in ours.settled(plan).warnings[0]
    conf.write_text("/srv/lib\n")
    assert ours.settled(plan).steps == ()
