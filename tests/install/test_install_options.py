"""``install`` takes ``resolve``'s options, and answers them as ``resolve`` does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.cli import Cli
from support.nvml import NvmlStub

HOPPER = ("--gpu", "9.0", "--driver", "580")


def fetched(cli: Cli, *options: str) -> str:
    """Path, below the redist tree, of the archive that the plan would unpack."""
    wish = ("--source", "archive", "--prefix", cli.base / "p", "--dry-run")
    steps = cli.json("install", *wish, *options)["plan"]["steps"]
    (url,) = (step["source"]["urls"][0] for step in steps if step["type"] == "Unpack")
    return str(url).partition("/redist/")[2]


def resolved(cli: Cli, *options: str) -> str:
    answer: dict[str, Any] = cli.json("resolve", "--method", "tarball", *options)
    return str(answer["resolution"]["archive"]["path"])


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (HOPPER, "_cuda13-"),
        (("--gpu", "7.0", "--driver", "580"), "_cuda12-"),
        (("--gpu", "9.0", "--driver", "535"), "_cuda12-"),
        ((*HOPPER, "--cuda", "12"), "_cuda12-"),
        ((*HOPPER, "--version", "9.8"), "-9.8.0."),
        ((*HOPPER, "--for", "torch==2.6.*"), "-9.1.0."),
        ((*HOPPER, "--arch", "aarch64"), "linux-sbsa-"),
        ((*HOPPER, "--glibc", "2.17"), "-9.5.0."),
        ((*HOPPER, "--flavour", "jit"), "cudnn_jit-"),
    ],
)
def test_another_machine_is_described(cli: Cli, options: tuple[str, ...], part: str) -> None:
    told = fetched(cli, *options)
    assert part in told
    assert told == resolved(cli, *options)


def test_a_project_asks_for_its_frameworks(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.6.0\n")
    assert "-9.1.0." in fetched(cli, *HOPPER, "--project", str(tmp_path))


def test_this_machines_gpu_counts_unless_it_is_left_out(cli: Cli, nvml_stub: NvmlStub) -> None:
    cli.environ |= nvml_stub([{"name": "Tesla V100-SXM2-16GB", "cc": "7.0"}])
    assert "_cuda12-" in fetched(cli)
    assert "_cuda13-" in fetched(cli, "--no-gpu")
