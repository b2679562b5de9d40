"""Recipes that a plan is printed as, carried out for real; an image built from one and checked."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support import redist
from support.cli import Cli
from support.redist_server import RedistServer, serving

BUILD, SHORT = "9.10.2.21", "9.10.2"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedistServer]:
    root = tmp_path_factory.mktemp("redist")
    archive = redist.build_archive(root, BUILD)
    redist.write_matrix(root / "matrix.yaml", {(BUILD, "12"): archive})
    with serving(root) as running:
        yield running


def recipe(cli: Cli, server: RedistServer, format: str, prefix: Path | str) -> str:
    options = ("--version", SHORT, "--cuda", "12", "--arch", "x86_64", "--source", "archive")
    matrix = server.root / "matrix.yaml"
    done = cli(
        *("install", *options, "--prefix", prefix, "--matrix", matrix, "--mirror", server.url),
        *("--dry-run", "--format", format),
    )
    return done.stdout


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


def run_script(script: str, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    subprocess.run(["sh", "-c", script], cwd=folder, check=True, capture_output=True, timeout=60)


def without_ldconfig(script: str) -> str:
    """The lines up to the first that would touch this machine's loader."""
    return script.split("# create ld.so.conf.d")[0].split("# create /etc")[0]


@pytest.mark.parametrize("format", ["dockerfile", "apptainer", "shell", "ansible-tasks"])
def test_recipe_pins_version_and_hash(
    cli: Cli, server: RedistServer, format: str, tmp_path: Path
) -> None:
    text = recipe(cli, server, format, tmp_path / "p")
    archive = next(server.root.rglob("*.tar.xz"))
    assert redist.sha256(archive) in text
    assert archive.name in text
    assert "latest" not in text


def test_apptainer_sections_come_in_order_and_post_runs(
    cli: Cli, server: RedistServer, tmp_path: Path
) -> None:
    text = recipe(cli, server, "apptainer", tmp_path / "p")
    header, *sections = re.split(r"^%(\w+)$", text, flags=re.MULTILINE)
    fields = dict(line.split(": ") for line in header.splitlines() if line)
    assert fields == {"Bootstrap": "docker", "From": "ubuntu:24.04"}
    found = dict(zip(sections[::2], sections[1::2], strict=True))
    assert list(found) == ["labels", "post", "environment"]
    assert f"CUDNN_ROOT={tmp_path / 'p'}" in found["environment"]
    script = "\n".join(line for line in found["post"].splitlines() if "apt-get" not in line)
    run_script(without_ldconfig(script), tmp_path / "cwd")
    assert (tmp_path / "p" / f"{SHORT}-cuda12" / "lib" / "libcudnn.so.9").exists()


def test_apptainer_brings_the_pip_that_a_plan_from_the_index_needs(
    cli: Cli, server: RedistServer, tmp_path: Path
) -> None:
    options = ("--version", SHORT, "--cuda", "12", "--arch", "x86_64", "--source", "wheel")
    prefix = ("--prefix", tmp_path / "p")
    text = cli("install", *options, *prefix, "--dry-run", "--format", "apptainer").stdout
    tools, script = text.split("set -eu")
    assert "python3-pip" in tools and "python3 -m pip" in script
    assert "python3-pip" not in recipe(cli, server, "apptainer", tmp_path / "p")


def test_ansible_tasks_use_known_modules_and_name_every_task(
    cli: Cli, server: RedistServer, tmp_path: Path
) -> None:
    tasks = yaml.safe_load(recipe(cli, server, "ansible-tasks", tmp_path / "p"))
    look, block = tasks
    assert look["ansible.builtin.stat"]["path"].endswith(f"{SHORT}-cuda12")
    assert block["when"] == "not cudnn_there.stat.exists"
    for task in [look, *block["block"], *block["always"]]:
        assert task["name"]
        (module,) = (key for key in task if key.startswith("ansible.builtin."))
        assert module.rpartition(".")[2] in {"stat", "tempfile", "file", "copy", "shell"}


@pytest.mark.wheels
def test_ansible_carries_the_tasks_out_once(cli: Cli, server: RedistServer, tmp_path: Path) -> None:
    venv = tmp_path / "ansible"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    pip = [str(venv / "bin" / "pip"), "install", "-q", "ansible-core"]
    subprocess.run(pip, check=True, timeout=300)
    tasks = yaml.safe_load(recipe(cli, server, "ansible-tasks", tmp_path / "p"))
    block = tasks[1]["block"]
    system = [t for t in block if "/etc" in json.dumps(t) or "ldconfig" in json.dumps(t)]
    tasks[1]["block"] = [task for task in block if task not in system]
    (tmp_path / "tasks.yml").write_text(yaml.safe_dump(tasks))
    play = [{"hosts": "localhost", "connection": "local", "gather_facts": False}]
    play[0]["tasks"] = [{"ansible.builtin.include_tasks": "tasks.yml"}]  # type: ignore[assignment]
    (tmp_path / "play.yml").write_text(yaml.safe_dump(play))
    command = [str(venv / "bin" / "ansible-playbook"), "-i", "localhost,", "play.yml"]
    environ = {**os.environ, "HOME": str(tmp_path), "ANSIBLE_LOCALHOST_WARNING": "0"}
    environ |= {"LC_ALL": "C.UTF-8"}
    changed = []
    for _ in range(2):
        done = subprocess.run(
            [*command, "-e", f"ansible_python_interpreter={sys.executable}"],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found = re.search(r"changed=(\d+)", done.stdout)
        changed.append(int(found[1]) if found else -1)
    assert changed[0] > 0
    assert changed[1] == 0
    assert (tmp_path / "p" / "lib" / "libcudnn.so.9").exists()


# -- an image without a Docker engine


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A minimal Debian with what the recipe says that the image needs."""
    program = shutil.which("debootstrap")
    if program is None:
        pytest.skip("debootstrap is not installed")
    root = tmp_path_factory.mktemp("image") / "root"
    tools = "--include=curl,xz-utils,ca-certificates"
    command = [program, "--variant=minbase", tools, "bookworm", str(root)]
    subprocess.run(command, check=True, capture_output=True, timeout=900)
    yield root
    shutil.rmtree(root)


def layers(dockerfile: str) -> list[str]:
    """Scripts of a Dockerfile's RUN instructions with here-documents, in order."""
    found = re.findall(r"^RUN <<'(\w+)'\n(.*?)^\1$", dockerfile, re.MULTILINE | re.DOTALL)
    return [script for _, script in found]


def files_of(root: Path) -> set[Path]:
    return {path.relative_to(root) for path in root.rglob("*") if path.is_file()}


def run_in(image: Path, script: str) -> str:
    done = subprocess.run(
        ["chroot", str(image), "/bin/sh", "-c", f"cd /\n{script}"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "no_proxy": "127.0.0.1"},
        timeout=120,
    )
    return done.stdout


@pytest.mark.root
def test_apptainer_post_ends_with_the_libraries_in_the_loader_s_cache(
    cli: Cli, server: RedistServer, image: Path
) -> None:
    text = recipe(cli, server, "apptainer", "/opt/cudnn")
    post = text.partition("%post\n")[2].partition("\n%environment")[0]
    run_in(image, "\n".join(line for line in post.splitlines() if "apt-get" not in line))
    try:
        assert "/opt/cudnn/" in run_in(image, "ldconfig -p | grep libcudnn.so")
    finally:
        run_in(image, "rm -rf /opt/cudnn /etc/ld.so.conf.d/*cudnn*; ldconfig")


@pytest.mark.root
def test_an_image_is_built_from_the_printed_dockerfile_and_checked(
    cli: Cli, server: RedistServer, image: Path, tmp_path: Path
) -> None:
    dockerfile = recipe(cli, server, "dockerfile", "/opt/cudnn")
    before = files_of(image)
    for script in layers(dockerfile):
        run_in(image, script)
    left = {path for path in files_of(image) - before if path.suffix in (".xz", ".new")}
    assert left == set(), "what was fetched stays in the layer"
    report = tmp_path / "check.sarif"
    arguments = ("check", "--root", image, "--no-gpu", "--report", f"sarif={report}")
    assert "/opt/cudnn/" in run_in(image, "ldconfig -p | grep libcudnn.so")
    document = cli.json(*arguments)
    copies = {copy["folder"]: copy.get("version", "") for copy in document["machine"]["copies"]}
    assert copies == {f"/opt/cudnn/{SHORT}-cuda12/lib": SHORT}
    assert document["verdict"] == "healthy"
    assert document["machine"]["system"]["distro_id"] == "debian"
    library = image / "opt" / "cudnn" / f"{SHORT}-cuda12" / "lib" / f"libcudnn_ops.so.{SHORT}"
    os.truncate(library, 600)
    assert cli(*arguments, "--format", "github", code=1).stdout.startswith("::error ")
    assert "cudnn-file-damaged" in report.read_text()


def test_names_do_not_become_commands(tmp_path: Path) -> None:
    from cudnn_doctor.install.plan import MakeFolder, Plan
    from cudnn_doctor.report.plan import FORMATS

    name = "/x'$(id)`id`\"{% endraw %}{{ 1 + 1 }}{#"
    step = MakeFolder(title=f"create {name}\nid", path=name)
    plan = Plan(
        action="install", method="wheel", version="9", cuda="12", target=name, steps=(step,)
    )
    script = FORMATS["shell"](plan).splitlines()
    assert [line for line in script if line.startswith("id")] == []
    tasks = yaml.safe_load(FORMATS["ansible-tasks"](plan))
    path = tasks[0]["block"][1]["ansible.builtin.file"]["path"]
    brace = "{{ '{' }}"
    assert not re.search(r"\{[{%#]", path.replace(brace, ""))
    assert path.replace(brace, "{") == name


@pytest.mark.parametrize("option", ["--prefix", "--python", "--mirror", "--archive"])
@pytest.mark.parametrize("value", ["", " ", "/a\nb", "/a\x1bc", b"/\xff"])
def test_names_that_no_recipe_can_carry_are_wrong_usage(
    cli: Cli, option: str, value: str | bytes
) -> None:
    told = cli("install", "--dry-run", option, os.fsdecode(value), code=2).stderr
    assert option in told
    assert "Traceback" not in told
