"""Installing into a prefix through the command line, from a real server and real archives."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import LEGACY, NEW, OLD, Redist
from support import fakewheels, redist
from support.cli import Cli, tree
from support.redist_server import RedistServer


@pytest.fixture
def install(cli: Cli, redist_tree: Redist, server: RedistServer, tmp_path: Path):
    """Install a release into the test's prefix."""

    def run(version: str, *more: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        args = ("install", "--version", version, "--prefix", tmp_path / "p", "--cuda", "12")
        basic = ("--arch", "x86_64", "--matrix", redist_tree.matrix, "--mirror", server.url)
        return cli(*args, *basic, "--source", "archive", "--yes", *more, code=code)

    return run


def test_a_version_is_put_in_place_and_found(install, tmp_path: Path) -> None:
    done = install("9.10.2")
    prefix = tmp_path / "p"
    assert "loaded: cuDNN 9.10.2, 8 libraries" in done.stderr
    assert os.readlink(prefix / "current") == "9.10.2-cuda12"
    lib = prefix / "lib"
    assert os.readlink(lib / "libcudnn.so") == "libcudnn.so.9"
    assert (lib / "libcudnn.so").resolve().name == "libcudnn.so.9.10.2"
    assert "CUDNN_MAJOR 9" in (prefix / "include" / "cudnn_version.h").read_text()
    assert (prefix / "current" / "LICENSE").read_text() == "The licence.\n"
    assert not list(lib.glob("*.a"))
    assert not [p for p in prefix.iterdir() if ".new" in p.name]


def test_nothing_is_written_that_the_plan_does_not_name(install, cli: Cli, tmp_path: Path) -> None:
    cli.environ["TMPDIR"] = str(tmp_path / "tmp")
    (tmp_path / "tmp").mkdir()
    plan = json.loads(install("9.10.2", "--dry-run", "--format", "json").stdout)["plan"]
    before = set(tmp_path.rglob("*"))
    install("9.10.2")
    made = set(tmp_path.rglob("*")) - before
    own = {tmp_path / name for name in ("state", "cache")}
    single = {Path(step["path"]) for step in plan["steps"] if "path" in step}
    trees = {Path(step["target"]) for step in plan["steps"] if step["type"] == "MoveTree"}
    single |= {parent for path in single for parent in path.parents}
    assert single & made and trees <= made
    assert not {p for p in made - single if not ({p, *p.parents} & (own | trees))}


def test_the_old_layout_comes_out_the_same(
    cli: Cli, redist_tree: Redist, server: RedistServer, tmp_path: Path
) -> None:
    args = ("--version", "8.2.4", "--cuda", "11.4", "--prefix", tmp_path / "p", "--yes")
    cli("install", *args, "--no-gpu", "--matrix", redist_tree.matrix, "--mirror", server.url)
    folder = tmp_path / "p" / "8.2.4-cuda11"
    assert {p.name for p in folder.iterdir()} >= {"include", "lib", "LICENSE"}
    assert (folder / "lib" / "libcudnn_ops_infer.so").resolve().name.endswith(".so.8.2.4")


def test_static_libraries_come_only_when_asked_for(install, tmp_path: Path) -> None:
    install("9.10.2", "--static")
    static = tmp_path / "p" / "lib" / "libcudnn_static.a"
    assert static.read_bytes() == redist.STATIC


def test_compilers_and_shells_find_it(install, tmp_path: Path) -> None:
    strange = tmp_path / "a b'c\"d$e"
    install("9.10.2", "--prefix", str(strange))
    source = tmp_path / "main.c"
    source.write_text(
        "#include <cudnn_version.h>\nunsigned long cudnnGetVersion(void);\n"
        "int main(void) { return cudnnGetVersion() == 91002 && CUDNN_MAJOR == 9 ? 0 : 1; }\n"
    )
    script = f". {shlex.quote(str(strange / 'env.sh'))}; gcc {source} -lcudnn -o {tmp_path}/main"
    subprocess.run(["sh", "-euc", f"unset LD_LIBRARY_PATH; {script}; {tmp_path}/main"], check=True)


def test_versions_lie_side_by_side_and_are_switched(install, cli: Cli, tmp_path: Path) -> None:
    install("9.1.0")
    install("9.10.2")
    prefix = tmp_path / "p"
    assert os.readlink(prefix / "current") == "9.10.2-cuda12"
    cli("use", "9.1.0", "--prefix", prefix, "--yes")
    assert os.readlink(prefix / "current") == "9.1.0-cuda12"
    assert (prefix / "lib" / "libcudnn.so").resolve().name == "libcudnn.so.9.1.0"
    names = {e["name"]: e["current"] for e in cli.json("list", "--prefix", prefix)["installed"]}
    assert names == {"9.1.0-cuda12": True, "9.10.2-cuda12": False}


def test_rollback_brings_back_exactly_what_was(install, cli: Cli, tmp_path: Path) -> None:
    install("9.1.0")
    before = tree(tmp_path / "p")
    install("9.10.2")
    cli("rollback", "--yes")
    assert tree(tmp_path / "p") == before
    cli("rollback", "--yes")
    assert not (tmp_path / "p").exists()
    assert "nothing to take back" in cli("rollback", "--yes", code=5).stderr


def test_rollback_leaves_later_changes_standing(install, cli: Cli) -> None:
    install("9.1.0")
    first = cli.json("list")["changes"][0]["receipt"]
    install("9.10.2")
    assert "a later change builds on it" in cli("rollback", first, "--yes", code=5).stderr


def test_uninstall_switches_to_what_is_left_then_leaves_nothing(
    install, cli: Cli, tmp_path: Path
) -> None:
    install("9.1.0")
    install("9.10.2")
    prefix = tmp_path / "p"
    cli("uninstall", "9.10.2", "--prefix", prefix, "--yes")
    assert os.readlink(prefix / "current") == "9.1.0-cuda12"
    assert not (prefix / "9.10.2-cuda12").exists()
    cli("uninstall", "9.1.0-cuda12", "--prefix", prefix, "--yes")
    assert [path.name for path in prefix.iterdir()] == [".9.1.0-cuda12.cudnn-doctor-kept"]
    assert "kept for a rollback" in cli("list").stdout
    cli("cache", "clear")
    assert not prefix.exists()
    assert "took for good" in cli("rollback", "--yes", code=5).stderr


def test_an_uninstall_is_taken_back_exactly(install, cli: Cli, tmp_path: Path) -> None:
    install("9.10.2")
    before = tree(tmp_path / "p")
    cli("uninstall", "9.10.2", "--prefix", tmp_path / "p", "--yes")
    cli("rollback", "--yes")
    assert tree(tmp_path / "p") == before


def test_a_repair_is_taken_back_exactly(install, cli: Cli, tmp_path: Path) -> None:
    install("9.10.2")
    (tmp_path / "p/9.10.2-cuda12/include/cudnn.h").write_text("damage")
    before = tree(tmp_path / "p")
    cli("repair", "--prefix", tmp_path / "p", "--yes")
    assert tree(tmp_path / "p") != before
    cli("rollback", "--yes")
    assert tree(tmp_path / "p") == before


def test_files_of_others_stay(install, cli: Cli, tmp_path: Path) -> None:
    prefix = tmp_path / "p"
    (prefix / "9.10.2-cuda12").mkdir(parents=True)
    (prefix / "9.10.2-cuda12" / "mine").write_text("mine")
    (prefix / "notes").write_text("mine")
    before = tree(prefix)
    assert "something else than this tool's" in install("9.10.2", code=5).stderr
    assert tree(prefix) == before
    install("9.1.0")
    cli("uninstall", "9.1.0", "--prefix", prefix, "--yes")
    cli("cache", "clear")
    assert tree(prefix) == before


def test_the_second_time_nothing_is_done(install, cli: Cli, server: RedistServer) -> None:
    install("9.10.2")
    server.requests.clear()
    assert "Nothing is to be done." in install("9.10.2").stdout
    assert server.requests == []
    assert len(cli.json("list")["changes"]) == 1


def test_repair_brings_damaged_files_back(install, cli: Cli, tmp_path: Path) -> None:
    install("9.10.2")
    before = tree(tmp_path / "p")
    library = tmp_path / "p" / "9.10.2-cuda12" / "lib" / "libcudnn_graph.so.9.10.2"
    library.write_bytes(library.read_bytes()[:100])
    assert "damaged" in install("9.10.2", code=5).stderr
    done = cli("repair", "--yes", "--prefix", tmp_path / "p")
    assert "libcudnn_graph.so.9.10.2 was changed" in done.stdout
    cli("cache", "clear")
    assert tree(tmp_path / "p") == before
    assert "Nothing is unfinished" in cli("repair", "--yes", "--prefix", tmp_path / "p").stdout


# -- what it is filled from


def test_an_archive_brought_by_hand_needs_no_network(
    cli: Cli, redist_tree: Redist, tmp_path: Path
) -> None:
    archive = redist_tree.archives[OLD, "12"]
    args = ("--archive", archive, "--prefix", tmp_path / "p", "--matrix", redist_tree.matrix)
    done = cli("install", *args, "--yes")
    assert "by its SHA-256" in " ".join(done.stdout.split())
    assert (tmp_path / "p" / "9.1.0-cuda12").is_dir()


def test_an_unknown_or_wrong_archive_is_refused(
    cli: Cli, redist_tree: Redist, tmp_path: Path
) -> None:
    stranger = tmp_path / "cudnn-linux-x86_64-9.1.0.70_cuda12-archive.tar.xz"
    stranger.write_bytes(b"no archive")
    args = ("--prefix", tmp_path / "p", "--matrix", redist_tree.matrix, "--yes")
    assert "no archive or wheel" in cli("install", "--archive", stranger, *args, code=5).stderr
    known = redist_tree.archives[OLD, "12"]
    done = cli("install", "--archive", known, "--version", "9.10.2", *args, code=5)
    assert "not what was asked for" in done.stderr
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("installer", ["uv", "pip"])
def test_a_wheel_fills_the_prefix_like_the_archive(
    install, cli: Cli, redist_tree: Redist, tmp_path: Path, installer: str
) -> None:
    install("9.10.2")
    programs = tmp_path / "bin"
    programs.mkdir()
    if installer == "uv":
        uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
        (programs / "uv").symlink_to(uv)
    links = str(redist_tree.root)
    offline = {"PIP_FIND_LINKS": links, "PIP_NO_INDEX": "1", "UV_FIND_LINKS": links}
    cli.environ |= {**offline, "UV_NO_INDEX": "1", "PATH": f"{programs}:/usr/bin:/bin"}
    args = ("--version", "9.10.2", "--prefix", tmp_path / "w", "--matrix", redist_tree.matrix)
    done = cli("install", *args, "--arch", "x86_64", "--source", "wheel", "--yes")
    assert f"with {installer}" in done.stdout
    for part in ("include/cudnn_version.h", "lib/libcudnn.so", "lib/libcudnn_ops.so.9"):
        one, other = tmp_path / "p" / part, tmp_path / "w" / part
        assert one.read_bytes() == other.read_bytes()
    assert not [p for p in (tmp_path / "w").iterdir() if p.name.startswith(".")]


def test_a_wheel_of_a_mirror_fills_the_prefix(
    cli: Cli, redist_tree: Redist, server: RedistServer, tmp_path: Path
) -> None:
    args = ("--version", "9.10.2", "--prefix", tmp_path / "w", "--matrix", redist_tree.matrix)
    mirror = ("--mirror", server.url, "--source", "wheel")
    cli("install", *args, "--arch", "x86_64", *mirror, "--yes")
    assert (tmp_path / "w" / "lib" / "libcudnn.so").resolve().is_file()


def test_a_folder_in_nvidias_layout_is_a_mirror(
    cli: Cli, redist_tree: Redist, tmp_path: Path
) -> None:
    """Relative to where the command runs; nothing of it is copied into the cache."""
    args = ("--version", "9.1.0", "--cuda", "12", "--arch", "x86_64", "--prefix", tmp_path / "p")
    mirror = os.path.relpath(redist_tree.root)
    done = cli("install", *args, "--matrix", redist_tree.matrix, "--mirror", mirror, "--yes")
    assert "a local file" in " ".join(done.stdout.split())
    assert (tmp_path / "p/9.1.0-cuda12").is_dir()
    assert cli.json("cache", "list")["files"] == []
    empty = ("--mirror", tmp_path / "nothing", "--prefix", tmp_path / "q", "--yes")
    errors = cli("install", *args, "--matrix", redist_tree.matrix, *empty, code=5).stderr
    assert "no such file" in errors and not (tmp_path / "q").exists()


def source_of(cli: Cli, redist_tree: Redist, tmp_path: Path, *more: str) -> str:
    """The step that would fill a prefix."""
    args = ("--version", "9.10.2", "--cuda", "12", "--arch", "x86_64", "--matrix")
    plan = cli.json("install", *args, redist_tree.matrix, "--prefix", tmp_path / "x", "--dry-run",
                    *more)["plan"]  # fmt: skip
    return next(s["type"] for s in plan["steps"] if s["type"] in ("Unpack", "FromIndex"))


def test_the_faster_source_is_chosen_where_it_suffices(
    cli: Cli, redist_tree: Redist, server: RedistServer, tmp_path: Path
) -> None:
    assert source_of(cli, redist_tree, tmp_path) == "FromIndex"
    assert source_of(cli, redist_tree, tmp_path, "--source", "wheel") == "FromIndex"
    assert source_of(cli, redist_tree, tmp_path, "--source", "archive") == "Unpack"
    assert source_of(cli, redist_tree, tmp_path, "--static") == "Unpack"
    assert source_of(cli, redist_tree, tmp_path, "--mirror", server.url) == "Unpack"
    wish = ("--source", "wheel", "--static", "--prefix", str(tmp_path / "x"), "--dry-run")
    args = ("--version", "9.10.2", "--cuda", "12", "--arch", "x86_64", *wish)
    errors = cli("install", *args, "--matrix", redist_tree.matrix, code=5).stderr
    assert "wheels hold no static libraries" in errors


def test_a_wheel_with_another_hash_is_refused(
    cli: Cli, redist_tree: Redist, tmp_path: Path
) -> None:
    fakewheels.build_wheel(tmp_path / "evil", "nvidia-cudnn-cu12", NEW, {"nvidia/x": "x"})
    links = str(tmp_path / "evil")
    cli.environ |= {"PIP_FIND_LINKS": links, "PIP_NO_INDEX": "1", "UV_FIND_LINKS": links}
    cli.environ["UV_NO_INDEX"] = "1"
    args = ("--version", "9.10.2", "--prefix", tmp_path / "w", "--matrix", redist_tree.matrix)
    done = cli("install", *args, "--arch", "x86_64", "--source", "wheel", "--yes", code=5)
    assert "hash" in done.stderr.lower()
    assert not (tmp_path / "w").exists()


# -- recipes, locks, downloads


def test_the_printed_script_does_the_same(
    install, cli: Cli, redist_tree: Redist, server: RedistServer, tmp_path: Path
) -> None:
    for version in ("9.10.2", "9.1.0"):
        install(version)
    prefix = tmp_path / "p"
    done = tree(prefix)
    (tmp_path / "tool").mkdir()
    prefix.rename(tmp_path / "tool" / "p")
    for version in ("9.10.2", "9.1.0"):
        script = install(version, "--dry-run", "--format", "shell").stdout
        subprocess.run(["sh", "-c", script], check=True, cwd=tmp_path, capture_output=True)
    ours = {name: what for name, what in done.items() if ".cudnn-doctor.json" not in name}
    assert tree(prefix) == ours


def test_the_printed_script_unpacks_the_old_layout_and_wheels(
    cli: Cli, redist_tree: Redist, server: RedistServer, tmp_path: Path
) -> None:
    common = ("--no-gpu", "--matrix", redist_tree.matrix, "--mirror", server.url, "--yes")
    for version, cuda, source in ((LEGACY, "11.4", "archive"), (NEW, "12", "wheel")):
        wish = ("install", "--version", version, "--cuda", cuda, "--source", source)
        cli(*wish, *common, "--prefix", tmp_path / "tool")
        args = (*wish, *common, "--prefix", tmp_path / "script", "--dry-run", "--format", "shell")
        script = cli(*args).stdout
        subprocess.run(["sh", "-c", script], check=True, cwd=tmp_path, capture_output=True)
        name = f"{'.'.join(version.split('.')[:3])}-cuda{cuda.split('.')[0]}"
        ours = tree(tmp_path / "tool" / name)
        del ours[".cudnn-doctor.json"]
        assert tree(tmp_path / "script" / name) == ours


def test_dockerfile_lines_are_for_an_empty_machine(install, tmp_path: Path) -> None:
    install("9.10.2")
    text = install("9.10.2", "--dry-run", "--format", "dockerfile").stdout
    lines = text.splitlines()
    assert lines[0] == "# syntax=docker/dockerfile:1"
    begin, end = lines.index("RUN <<'CUDNN'"), lines.index("CUDNN")
    assert lines[end + 1] == f"ENV CUDNN_ROOT={tmp_path / 'p'}"
    (tmp_path / "p").rename(tmp_path / "kept")
    script = "\n".join(lines[begin + 1 : end])
    subprocess.run(["sh", "-c", script], check=True, cwd=tmp_path, capture_output=True)
    assert (tmp_path / "p" / "lib" / "libcudnn.so").resolve().is_file()


def test_a_lock_brings_the_same_again(install, cli: Cli, tmp_path: Path) -> None:
    lock = tmp_path / "cudnn.lock"
    install("9.1.0", "--lock", str(lock))
    text = lock.read_text()
    install("9.1.0", "--lock", str(lock))  # nothing is to be done, and the lock is the same
    assert lock.read_text() == text and "sha256:" in text
    install(">=9", "--lock", str(lock), "--frozen", "--prefix", str(tmp_path / "q"))
    assert os.readlink(tmp_path / "q" / "current") == "9.1.0-cuda12"
    assert lock.read_text() == text
    lock.write_text(text.replace("sha256:", "sha256:00"))
    frozen = ("--lock", str(lock), "--frozen", "--prefix", str(tmp_path / "r"))
    assert "does not name" in install("9", *frozen, code=5).stderr
    lock.write_text("{}")
    assert "not a lock file" in install("9", *frozen, code=7).stderr
    assert not (tmp_path / "r").exists()


def test_download_then_install_without_the_server(
    cli: Cli, redist_tree: Redist, server: RedistServer, tmp_path: Path
) -> None:
    args = (
        "--version",
        "9.1.0",
        "--cuda",
        "12",
        "--arch",
        "x86_64",
        "--matrix",
        redist_tree.matrix,
    )
    found = cli.json("download", *args, "--mirror", server.url, "--dest", tmp_path / "stick")
    archive = Path(found["file"])
    assert archive.read_bytes() == redist_tree.archives[OLD, "12"].read_bytes()
    assert cli.json("cache", "list")["files"][0]["size"] == archive.stat().st_size
    cli("cache", "clear")
    assert cli.json("cache", "list")["files"] == []
    server.fault = "404"
    offline = ("--archive", archive, "--prefix", tmp_path / "p", "--matrix", redist_tree.matrix)
    cli("install", *offline, "--yes")
    assert (tmp_path / "p" / "lib" / "libcudnn.so").exists()
