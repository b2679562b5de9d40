"""Snapshots: what goes out comes back, and nothing that is fed in makes a traceback."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cudnn_doctor.errors import BadInput
from cudnn_doctor.machine.model import CudnnCopy, Gpu, Machine, Repository, System
from cudnn_doctor.machine.snapshot import load_snapshot, redact, save_snapshot

UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"


def _machine() -> Machine:
    return Machine(
        tool="cudnn-doctor 0.1.0",
        system=System(user="mallory", distro_id="ubuntu"),
        gpus=(Gpu(name="NVIDIA L4", uuid=UUID, compute_capability="8.9"),),
        environ={
            "LD_LIBRARY_PATH": "/home/mallory/cudnn/lib:/scratch/mallory/lib",
            "CUDA_VISIBLE_DEVICES": UUID,
            "HTTPS_PROXY": "http://mallory:hunter2@proxy.corp.example:3128",
            "HOSTNAME": "secret-box",
        },
        copies=(CudnnCopy(folder="/home/mallory/cudnn/lib", major=9),),
        repositories=(
            Repository(manager="apt", url="https://me:pa55@repo.example/x?token=abc123&a=1"),
        ),
        notes=("seen on secret-box",),
    )


def _load(tmp_path: Path, text: str | bytes) -> Machine:
    file = tmp_path / "machine"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_snapshot(str(file))


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "m.json"
    save_snapshot(_machine(), str(file))
    assert load_snapshot(str(file)) == _machine()
    assert file.stat().st_mode & 0o600 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["m.json"]


def test_report_of_check_is_a_snapshot(tmp_path: Path) -> None:
    report = {"schema": 7, "machine": msgspec.to_builtins(_machine()), "findings": []}
    assert _load(tmp_path, json.dumps(report)) == _machine()


def test_partial_json_and_yaml_are_partial_machines(tmp_path: Path) -> None:
    as_json = _load(tmp_path, '{"copies": [{"folder": "/x", "version": "9.10.2"}]}')
    as_yaml = _load(tmp_path, "copies:\n- folder: /x\n  version: 9.10\n")
    assert as_json.partial and as_json.copies == (CudnnCopy(folder="/x", version="9.10.2"),)
    assert as_yaml.copies == (CudnnCopy(folder="/x", version="9.10"),), "9.10 is no number"


def test_loose_description(tmp_path: Path) -> None:
    machine = _load(tmp_path, "gpu: RTX 4060 (CC 8.9)\ndriver: 535.183.01 (CUDA 12.2)\n")
    assert machine.gpus is not None and machine.gpus[0].compute_capability == "8.9"
    assert machine.driver.cuda == "12.2"


@pytest.mark.parametrize(
    ("text", "tells"),
    [
        ("", "empty"),
        ("[1, 2]", "mapping"),
        ('{"gpus": [}', "JSON"),
        ("a: [\n", "YAML"),
        ("a: &x [1]\nb: *x\n", "aliases"),
        ('{"copise": []}', "did you mean 'copies'"),
        ('{"schema": 99, "tool": "x"}', "schema"),
        ('{"gpus": 5}', "snapshot"),
        (b"\xff\xfe\x00", "text"),
        ("[" * 100_000, "recursion"),
        ('{"a":' * 100_000, "JSON"),
    ],
)
def test_garbage_is_refused_with_a_reason(tmp_path: Path, text: str | bytes, tells: str) -> None:
    with pytest.raises(BadInput) as error:
        _load(tmp_path, text)
    assert tells in str(error.value) and error.value.where


def test_broken_json_tells_the_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        _load(tmp_path, '{\n"tool": "x",\n"gpus": oops\n}')
    assert error.value.where.endswith("line 3")


def test_missing_file_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        load_snapshot(str(tmp_path / "none.json"))


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_load_or_are_bad_input(tmp_path: Path, data: bytes) -> None:
    with contextlib.suppress(BadInput):
        _load(tmp_path, data)


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
_keys = st.sampled_from(
    ["os", "gpu", "driver", "cuda", "env", "frameworks", "cudnn_copies", "notes", "tool", "system"]
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.dictionaries(_keys, _values))
def test_any_description_loads_or_is_bad_input(tmp_path: Path, data: dict[str, object]) -> None:
    with contextlib.suppress(BadInput):
        _load(tmp_path, json.dumps(data))


def test_redaction_hides_people_hosts_and_secrets() -> None:
    text = msgspec.json.encode(redact(_machine())).decode()
    for secret in ("mallory", "hunter2", "pa55", "abc123", "proxy.corp", "secret-box", "8932f937"):
        assert secret not in text
    assert "HTTPS_PROXY" in text and "LD_LIBRARY_PATH" in text


def test_redaction_keeps_what_belongs_together() -> None:
    clean = redact(_machine())
    assert clean.gpus is not None and clean.copies is not None
    assert clean.environ["CUDA_VISIBLE_DEVICES"] == clean.gpus[0].uuid
    folders = clean.environ["LD_LIBRARY_PATH"].split(":")
    assert folders[0] == clean.copies[0].folder and folders[0].startswith("/")
    assert redact(clean) == clean or clean.gpus[0].uuid.startswith("GPU-00000000")
