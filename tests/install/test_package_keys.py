"""OpenPGP keys: fingerprints as real gpg tells them, and nothing else let in."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.signing import SigningKey

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install.packages import keys, openpgp
from cudnn_doctor.install.plan import FetchKey


@pytest.fixture(scope="module")
def key() -> SigningKey:
    return SigningKey()


@pytest.mark.parametrize("armoured", [True, False])
def test_the_fingerprint_is_the_one_that_gpg_tells(key: SigningKey, armoured: bool) -> None:
    assert openpgp.fingerprints(openpgp.dearmour(key.public(armoured))) == [key.fingerprint]


def test_what_is_written_is_what_gpg_reads(key: SigningKey, tmp_path: Path) -> None:
    text = keys.checked(key.public(armoured=False), key.fingerprint)
    (tmp_path / "key.asc").write_text(text)
    command = ["gpg", "--homedir", str(tmp_path), "--with-colons", "--show-keys", "key.asc"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert key.fingerprint in shown.stdout


def test_a_second_key_in_the_file_is_refused(key: SigningKey) -> None:
    other = SigningKey()
    both = key.public(armoured=False) + other.public(armoured=False)
    with pytest.raises(ValueError, match=other.fingerprint):
        keys.checked(both, key.fingerprint)


def test_a_secret_key_is_no_public_key(key: SigningKey) -> None:
    with pytest.raises(ValueError, match="does not belong"):
        openpgp.fingerprints(key.gpg("--export-secret-keys"))


def test_a_wrong_key_is_not_written(key: SigningKey, tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_bytes(key.public())
    url = (tmp_path / "key.pub").as_uri()
    step = FetchKey(urls=(url,), fingerprint="0" * 40, path=str(tmp_path / "out.asc"))
    with pytest.raises(DoctorError, match=key.fingerprint) as caught:
        keys.fetch_key(step, tmp_path / "saved")
    assert caught.value.exit_code == ExitCode.NOTHING_CHANGED
    assert not (tmp_path / "out.asc").exists()


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        openpgp.fingerprints(openpgp.dearmour(data))


@given(st.data())
def test_damaged_keys_are_read_or_refused(key: SigningKey, data: st.DataObject) -> None:
    raw = bytearray(key.public(data.draw(st.booleans())))
    for _ in range(data.draw(st.integers(1, 5))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    del raw[data.draw(st.integers(0, len(raw))) :]
    try:
        text = keys.checked(bytes(raw), key.fingerprint)
    except ValueError:
        return
    assert openpgp.fingerprints(openpgp.dearmour(text.encode())) == [key.fingerprint]


@given(st.binary(max_size=400))
def test_armour_and_back(data: bytes) -> None:
    assert openpgp.dearmour(openpgp.armour(b"\x99" + data).encode()) == b"\x99" + data
