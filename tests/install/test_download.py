"""Downloads from a real loopback server that misbehaves: the right bytes or a clear error."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import os
import random
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from support.redist_server import RedistServer, serving

from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.install.archives import download, transfer
from cudnn_doctor.install.archives.download import Arriving, cached, fetch
from cudnn_doctor.install.archives.transfer import MirrorError
from cudnn_doctor.install.plan import Fetch
from cudnn_doctor.install.progress import Silent
from cudnn_doctor.install.state import State

BLOCK = 1 << 16
DATA = random.Random(9).randbytes(40 * BLOCK + 123)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedistServer]:
    monkeypatch.setattr(transfer, "BLOCK", BLOCK)
    monkeypatch.setattr(transfer, "BACK_OFF_SECONDS", 0.01)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "file.tar.xz").write_bytes(DATA)
    with serving(tmp_path / "root") as running:
        yield running


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "state", tmp_path / "cache")


def step(*urls: str, size: int | None = len(DATA)) -> Fetch:
    digest = hashlib.sha256(DATA).hexdigest()
    return Fetch(urls=urls, sha256=digest, size=size, name="file.tar.xz")


def whole(server: RedistServer) -> Fetch:
    return step(f"{server.url}file.tar.xz")


def test_a_file_arrives_over_several_connections(server: RedistServer, state: State) -> None:
    path = fetch(whole(server), state, Silent())
    assert path == cached(state, hashlib.sha256(DATA).hexdigest())
    assert path.read_bytes() == DATA
    assert len(server.requests) == 41
    assert server.served == len(DATA)


def test_connections_are_open_at_once(server: RedistServer, state: State) -> None:
    server.rate = 100 * BLOCK
    fetch(whole(server), state, Silent())
    assert server.most_at_once > 2


def test_the_second_time_it_comes_from_the_cache(server: RedistServer, state: State) -> None:
    fetch(whole(server), state, Silent())
    server.requests.clear()
    assert fetch(whole(server), state, Silent()).read_bytes() == DATA
    assert server.requests == []


def test_bytes_can_be_read_while_the_rest_arrives(server: RedistServer, state: State) -> None:
    server.rate = 20 * BLOCK
    with Arriving(whole(server), state, Silent()) as arriving:
        first = arriving.read(1000)
        assert first == DATA[: len(first)] and first
        assert server.served < len(DATA) // 2
        server.rate = 0.0
        rest = arriving.read()
    assert first + rest == DATA


@pytest.mark.parametrize("fault", ["no-ranges", "503", "429", "truncate", "reset"])
def test_passing_faults_are_overcome(server: RedistServer, state: State, fault: str) -> None:
    server.fault, server.faults_left = fault, 2
    assert fetch(whole(server), state, Silent()).read_bytes() == DATA


def test_a_server_without_ranges_serves_as_well(server: RedistServer, state: State) -> None:
    server.fault = "no-ranges"
    assert fetch(whole(server), state, Silent()).read_bytes() == DATA


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("404", "HTTP 404"),
        ("403", "HTTP 403"),
        ("500", "HTTP 500"),
        ("loop", "circle"),
        ("truncate", "ended after|broke off"),
        ("reset", "broke off"),
        ("corrupt", "not the file that NVIDIA published"),
        ("lie", "the published one"),
        ("nonsense", "makes no sense"),
        ("http://[::1", "no sense|cannot connect"),
        ("http://a..b/", "no sense|cannot connect"),
        ("http://127.0.0.1:99999999/", "[Pp]ort"),
        ("s3://bucket/file", "s3"),
    ],
)
def test_lasting_faults_are_told(server: RedistServer, state: State, fault: str, says: str) -> None:
    server.fault = fault
    with pytest.raises(DoctorError, match=says) as caught:
        fetch(whole(server), state, Silent())
    assert caught.value.exit_code == ExitCode.NOTHING_CHANGED
    assert caught.value.next_step
    assert not cached(state, hashlib.sha256(DATA).hexdigest()).exists()


def test_ca_certificates_that_are_not_there(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nonexistent/ca.pem")
    with pytest.raises(DoctorError, match=r"/nonexistent/ca\.pem"):
        fetch(step("https://127.0.0.1:1/file.tar.xz"), state, Silent())


def test_a_lie_about_the_length_is_seen_without_the_matrix(
    server: RedistServer, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "STALL_SECONDS", 0.1)
    server.fault = "lie"
    with pytest.raises(DoctorError):
        fetch(step(f"{server.url}file.tar.xz", size=None), state, Silent())


@pytest.mark.parametrize("ranges", [True, False])
def test_a_slow_drip_is_given_up(
    server: RedistServer, state: State, monkeypatch: pytest.MonkeyPatch, ranges: bool
) -> None:
    monkeypatch.setattr(transfer, "STALL_SECONDS", 0.4)
    monkeypatch.setattr(transfer, "TRIES", 2)
    monkeypatch.setattr(transfer, "BLOCK", BLOCK if ranges else 2 * len(DATA))
    server.fault = "drip"
    with pytest.raises(DoctorError, match=r"stalled|broke off|stopped|ended after"):
        fetch(whole(server), state, Silent())


def test_the_next_mirror_is_tried(server: RedistServer, state: State) -> None:
    urls = (f"{server.url}nothing", f"{server.url}file.tar.xz")
    assert fetch(step(*urls), state, Silent()).read_bytes() == DATA


def test_an_interrupted_download_is_taken_up_again(server: RedistServer, state: State) -> None:
    with Arriving(whole(server), state, Silent()) as arriving:
        while arriving._position < 30 * BLOCK:
            arriving.read(BLOCK)
    assert arriving.part.stat().st_size >= 30 * BLOCK
    server.served = 0
    assert fetch(whole(server), state, Silent()).read_bytes() == DATA
    assert server.served <= len(DATA) - (30 - 2 * transfer.WINDOW) * BLOCK


def test_a_part_that_does_not_fit_is_begun_anew(server: RedistServer, state: State) -> None:
    part = state.cache / "files" / (hashlib.sha256(DATA).hexdigest() + ".part")
    part.parent.mkdir(parents=True)
    part.write_bytes(b"x" * (len(DATA) + 40 * BLOCK))
    found = fetch(step(f"{server.url}file.tar.xz", size=None), state, Silent())
    assert found.read_bytes() == DATA


def test_a_damaged_cache_is_told_and_emptied(server: RedistServer, state: State) -> None:
    path = fetch(whole(server), state, Silent())
    path.write_bytes(b"rot" + DATA[3:])
    with pytest.raises(DoctorError, match="damaged and is removed"):
        fetch(whole(server), state, Silent())
    assert fetch(whole(server), state, Silent()).read_bytes() == DATA


def test_a_local_file_is_read_where_it_is(tmp_path: Path, state: State) -> None:
    path = tmp_path / "my file.tar.xz"
    path.write_bytes(DATA)
    assert fetch(step(path.as_uri()), state, Silent()) == path
    assert not (state.cache / "files").exists()
    path.write_bytes(b"other")
    with pytest.raises(DoctorError, match="not the file"):
        fetch(step(path.as_uri()), state, Silent())
    assert path.exists()


def test_a_proxy_that_refuses_is_named(
    server: RedistServer, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    listener.close()
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", f"http://user:secret@127.0.0.1:{port}")
    with pytest.raises(DoctorError, match="proxy refused") as caught:
        fetch(whole(server), state, Silent())
    assert "secret" not in str(caught.value)


def test_a_proxy_is_used_and_left_aside(
    server: RedistServer, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host exists nowhere: only the proxy can have given the file."""
    monkeypatch.setenv("http_proxy", server.url.replace("//", "//user:secret@"))
    url = "http://mirror.invalid/file.tar.xz"
    assert fetch(step(url), state, Silent()).read_bytes() == DATA
    assert server.requests[0].startswith(url)
    monkeypatch.setenv("NO_PROXY", "mirror.invalid")
    cached(state, whole(server).sha256).unlink()
    with pytest.raises(DoctorError, match="cannot connect"):
        fetch(step(url), state, Silent())


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_says_no_is_told_at_once(
    server: RedistServer, state: State, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv(f"{scheme}_proxy", server.url.replace("//", "//user:secret@"))
    server.fault = "407"
    with pytest.raises(DoctorError, match=r"HTTP 407|proxy refused") as caught:
        fetch(step(f"{scheme}://mirror.invalid/file.tar.xz"), state, Silent())
    assert "secret" not in str(caught.value) and "HTTPS_PROXY" in caught.value.next_step
    assert len(server.requests) <= 1


def test_a_netrc_gives_the_password_to_its_host_alone(
    tmp_path: Path, server: RedistServer, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    netrc.chmod(0o600)
    server.authorization = "Basic " + base64.b64encode(b"me:secret").decode()
    with pytest.raises(DoctorError, match="HTTP 401"):
        fetch(whole(server), state, Silent())
    monkeypatch.setenv("NETRC", str(netrc))
    assert fetch(whole(server), state, Silent()).read_bytes() == DATA
    cached(state, whole(server).sha256).unlink()
    moved = server.url.replace("127.0.0.1", "localhost") + "file.tar.xz"
    server.fault, server.faults_left = moved, 1
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    with pytest.raises(DoctorError, match="HTTP 401"):
        fetch(step(f"{server.url}file.tar.xz"), state, Silent())


def test_tries_are_few_and_ever_further_apart(
    server: RedistServer, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fault = "503"
    pauses = paused(monkeypatch)
    with pytest.raises(DoctorError, match="HTTP 503"):
        fetch(whole(server), state, Silent())
    assert len(server.requests) == transfer.TRIES == len(pauses) + 1
    assert [later / earlier for earlier, later in itertools.pairwise(pauses)] == [2, 2]


def test_a_server_may_say_when_to_come_again(
    server: RedistServer, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.fault, server.faults_left, server.retry_after = "429", 1, "7"
    pauses = paused(monkeypatch)
    assert fetch(whole(server), state, Silent()).read_bytes() == DATA
    assert pauses == [7]
    cached(state, whole(server).sha256).unlink()
    server.faults_left, server.retry_after = 1, "86400"
    assert fetch(whole(server), state, Silent()).read_bytes() == DATA
    assert pauses[1:] == [transfer.LONGEST_PAUSE_SECONDS]


def paused(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, which are not waited for."""
    pauses: list[float] = []
    monkeypatch.setattr(transfer.Transfer, "_pause", lambda _, seconds: pauses.append(seconds))
    return pauses


def test_only_a_trusted_certificate_is_accepted(
    tmp_path: Path, server: RedistServer, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    with serving(tmp_path / "root", certificate=(certificate, key)) as secure:
        with pytest.raises(DoctorError, match="certificate is not trusted") as caught:
            fetch(whole(secure), state, Silent())
        assert caught.value.exit_code == ExitCode.NOTHING_CHANGED
        assert secure.requests == []
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        assert fetch(whole(secure), state, Silent()).read_bytes() == DATA


def test_nobody_listens(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "BACK_OFF_SECONDS", 0.01)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(DoctorError, match="cannot connect"):
        fetch(step(f"http://user:secret@127.0.0.1:{port}/x"), state, Silent())


def test_addresses_are_told_without_secrets() -> None:
    url = "https://user:secret@example.org:8080/path/file?token=abc#part"
    assert download.redacted(url) == "https://example.org:8080/path/file"


def test_stopping_does_not_wait_for_a_slow_server(server: RedistServer, state: State) -> None:
    server.rate = 1000.0
    with Arriving(whole(server), state, Silent()) as arriving:
        thread = arriving._thread
    assert thread is not None and not thread.is_alive()


def test_a_cache_that_cannot_be_written_is_told(server: RedistServer, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(DoctorError, match="cannot create the folder") as caught:
        fetch(whole(server), State(tmp_path / "state", tmp_path / "cache"), Silent())
    assert "CUDNN_DOCTOR_CACHE" in caught.value.next_step
    assert os.path.isfile(tmp_path / "cache")


@pytest.mark.parametrize(
    ("location", "refused"),
    [("http://127.0.0.1/file", True), ("https://mirror.example/file", False), ("/file", False)],
)
def test_no_redirect_leads_away_from_tls(location: str, refused: bool) -> None:
    response = requests.Response()
    response.status_code, response.url = 302, "https://mirror.example/"
    response.headers["location"] = location
    with pytest.raises(MirrorError, match="https") if refused else contextlib.nullcontext():
        transfer._stay_encrypted(response)
