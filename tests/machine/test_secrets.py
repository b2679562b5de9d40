"""Secrets of every shape are taken out of texts; what only looks like one stays."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cudnn_doctor.machine.environ import relevant
from cudnn_doctor.machine.host import Host
from cudnn_doctor.machine.model import Machine
from cudnn_doctor.machine.project import probe_project
from cudnn_doctor.machine.redact import hide_secrets, without_secrets

WORD = "Xq7LEAKEDz0123456789"


@pytest.mark.parametrize(
    "text",
    [
        f"https://me:{WORD}@h/simple",
        f"https://me:pa/{WORD}@h/simple",
        f"https://me:p@{WORD}@h/simple",
        f"git+https://{WORD}@h/x@v1",
        f"//me:{WORD}@h/x",
        f"me:{WORD}@h:3128",
        f"https://h/x?client_secret={WORD}&x=1",
        f"https://h/t/ab-{WORD}/channel",
        f'{{"auth": {{"password": "{WORD}"}}}}',
        f"password: {WORD}",
        f"aws_secret_access_key={WORD}",
        f"DB_PASSWORD={WORD} program",
        f"--xla_token={WORD}",
        f"program --client-secret {WORD}",
        f"curl -u me:{WORD} https://h",
        f"Authorization: Basic {WORD}",
        f"one\nsk-proj-{WORD}",
        f"dckr_pat_{WORD}",
        f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0.{WORD}",
    ],
)
def test_secret_is_taken_out_of_texts_and_facts(text: str) -> None:
    assert WORD not in without_secrets(text)
    facts = Machine(notes=(text,), environ={"CUDA_X": text})
    assert WORD not in msgspec.json.encode(hide_secrets(facts)).decode()


@pytest.mark.parametrize(
    "text",
    [
        "nvidia/cuda:12.4@sha256:0123456789abcdef",
        "https://h:8080/torch@v2.6",
        "torch @ https://h/torch-2.6.0.whl",
        "glibc-minimal-langpack-2.28-251.el8",
        "pypi-placeholder-installed",
        "GPG key: 3BF863CC",
        "/usr/share/t/nvidia-cudnn-x/lib",
        "LD_LIBRARY_PATH=/opt/a:/opt/b",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == text


def test_variables_named_for_secrets_are_left_out() -> None:
    names = ("NVIDIA_API_KEY", "CUDA_PASSPHRASE", "TORCH_PAT", "JAX_PRIVATE_KEY", "UV_HTTP_AUTH")
    environ = dict.fromkeys(names, WORD)
    host = Host("/", {**environ, "https_proxy": WORD, "UV_INDEX_URL": f"https://me:a/{WORD}@h/"})
    assert relevant(host) == {"UV_INDEX_URL": "https://h/", "https_proxy": "set"}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (f"ENV LD_LIBRARY_PATH=/opt/x OTHER={WORD}", "/opt/x"),
        (f"RUN LD_LIBRARY_PATH=/opt/x program {WORD}", "/opt/x"),
        (f"export LD_LIBRARY_PATH=/opt/x; program {WORD}", "/opt/x"),
        (f'ENV LD_LIBRARY_PATH="/opt/my x:/opt/y" OTHER={WORD}', "/opt/my x:/opt/y"),
        ("ENV LD_LIBRARY_PATH /opt/x:$LD_LIBRARY_PATH", "/opt/x:$LD_LIBRARY_PATH"),
    ],
)
def test_a_setting_is_told_without_what_follows_it(line: str, value: str, tmp_path: Path) -> None:
    folder = tmp_path
    (folder / "Dockerfile").write_text(line + "\n")
    host = Host(str(folder), {"HOME": "/"})
    (setting,) = probe_project(host, str(folder)).settings
    assert setting.value == value
