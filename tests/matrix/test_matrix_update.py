"""`matrix update` from a manifest, a folder and a server with NVIDIA's layout."""

from __future__ import annotations

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cudnn_doctor.cli.app import app
from cudnn_doctor.errors import BadInput, DoctorError
from cudnn_doctor.install.archives.redistrib import manifests
from cudnn_doctor.matrix import query
from cudnn_doctor.matrix.load import default_path, load
from cudnn_doctor.matrix.update import merge, read_manifest

SHA = "ab" * 32


def _file(component: str, platform: str, build: str, cuda: str) -> dict[str, Any]:
    name = f"{component}-{platform}-{build}_cuda{cuda}-archive.tar.xz"
    return {
        "relative_path": f"{component}/{platform}/{name}",
        "sha256": SHA,
        "md5": "cd" * 16,
        "size": "123",
    }


def _manifest(build: str, date: str = "2026-12-24", cudas: tuple[str, ...] = ("12", "13")) -> bytes:
    """As NVIDIA writes them, with samples and Windows, which are left out."""
    parts: dict[str, Any] = {"release_date": date, "release_product": "cudnn"}
    for component in ("cudnn", "cudnn_jit", "cudnn_samples"):
        parts[component] = {"name": component, "version": build, "cuda_variant": list(cudas)}
        for platform in ("linux-x86_64", "linux-sbsa", "windows-x86_64"):
            files = {f"cuda{cuda}": _file(component, platform, build, cuda) for cuda in cudas}
            parts[component][platform] = files
    return json.dumps(parts).encode()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The last three releases of the shipped matrix, without the other tables."""
    text = default_path().read_text()
    head, body = text.split("releases:\n", 1)
    last = body[body.index('  - version: "9.27.0"') : body.index("\n# Known faults")]
    file = tmp_path / "base.yaml"
    file.write_text(f"{head}releases:\n\n{last}")
    return file


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    folder = tmp_path / "mirror" / "compute" / "cudnn" / "redist"
    folder.mkdir(parents=True)
    (folder / "redistrib_9.40.0.json").write_bytes(_manifest("9.40.0.12"))
    (folder / "redistrib_9.10.3.json").write_bytes(_manifest("9.10.3.1", "2025-07-01", ("12",)))
    (folder / "other.json").write_text("{}")
    return tmp_path / "mirror"


@pytest.fixture
def server(mirror: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    handler = functools.partial(Quiet, directory=str(mirror))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}/"
        running.shutdown()
        thread.join()


def test_a_manifest_becomes_a_release() -> None:
    release = read_manifest(_manifest("9.40.0.12"), "m.json")
    assert (release.version, release.build, release.date) == ("9.40.0", "9.40.0.12", "2026-12-24")
    assert [variant.cuda for variant in release.variants] == ["12", "13"]
    assert len(release.archives) == 8
    assert {archive.platform for archive in release.archives} == {"linux-x86_64", "linux-sbsa"}
    assert {archive.flavour for archive in release.archives} == {"full", "jit"}
    assert release.archives[0].size == 123


def test_old_flat_manifests_are_read() -> None:
    flat = {
        "release_date": "2022-08-09",
        "cudnn": {
            "version": "8.5.1.96",
            "linux-x86_64": _file("cudnn", "linux-x86_64", "8.5.1.96", "11"),
        },
    }
    release = read_manifest(json.dumps(flat).encode(), "m.json")
    assert [(a.cuda, a.platform) for a in release.archives] == [("11", "linux-x86_64")]


def _broken(**change: Any) -> bytes:
    record = _file("cudnn", "linux-x86_64", "9.40.0.12", "12") | change
    files = {"linux-x86_64": {"cuda12": record}}
    return json.dumps({"cudnn": {"version": "9.40.0.12"} | files}).encode()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"cudnn": {"version": 9}}',
        b'{"cudnn": {"version": "9.40"}}',
        _broken(relative_path="../../etc/passwd"),
        _broken(relative_path="/etc/passwd"),
        _broken(relative_path='a", x: "'),
        _broken(relative_path=5),
        _broken(sha256="short"),
        _broken(sha256=None),
        _broken(md5="g" * 32),
    ],
)
def test_a_broken_manifest_is_refused_by_name(text: bytes) -> None:
    with pytest.raises(BadInput, match=r"m\.json"):
        read_manifest(text, "m.json")


def test_merging_only_adds_lines() -> None:
    text = default_path().read_bytes()
    found = [read_manifest(_manifest(b, "2020-01-01"), b) for b in ("9.40.0.12", "9.10.3.1")]
    new, added = merge(text, "m.yaml", found)
    assert len(added) == 2
    old_lines, new_lines = text.decode().splitlines(), iter(new.decode().splitlines())
    assert all(line in new_lines for line in old_lines)
    assert merge(new, "m.yaml", found) == (new, ())


def test_archives_are_added_to_a_known_release(base: Path, tmp_path: Path) -> None:
    new, added = merge(
        base.read_bytes(), "m.yaml", [read_manifest(_manifest("9.28.1.4"), "m.json")]
    )
    assert added == ("9.28.1: 8 archives",)
    own = tmp_path / "own.yaml"
    own.write_bytes(new)
    before, after = load(base), load(own)
    release = query.release(after, "9.28.1")
    assert [variant.cuda for variant in release.variants] == ["13", "12"]
    assert release.wheels == query.release(before, "9.28.1").wheels
    assert query.variant(after, "9.28.1", "13") == query.variant(before, "9.28.1", "13")
    assert query.variant(after, "9.28.1", "12").cc is None
    assert after.releases[:-1] == before.releases[:-1]


def test_another_build_of_a_known_release_is_told_apart(base: Path, tmp_path: Path) -> None:
    found = read_manifest(_manifest("9.27.0.99", "2026-01-01", ("13",)), "m.json")
    own = tmp_path / "own.yaml"
    own.write_bytes(merge(base.read_bytes(), "m.yaml", [found])[0])
    archive = query.archive_for(load(own), "9.27.0", "13", "linux-x86_64")
    assert archive.version == "9.27.0.99"
    assert query.archive_for(load(own), "9.27.0.42", "13", "linux-x86_64").version == ""


def test_a_matrix_in_flow_style_is_refused() -> None:
    text = b'{schema: 1, updated: "2026-11-30", sources: {r: {how: measured, title: t}}, \
archive_source: r, releases: []}'
    with pytest.raises(BadInput, match="releases: must be a list"):
        merge(text, "m.yaml", [read_manifest(_manifest("9.40.0.12"), "m.json")])


def _update(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["matrix", "update", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("place", ["root", "redist", "file"])
def test_update_from_files(base: Path, mirror: Path, tmp_path: Path, place: str) -> None:
    redist = mirror / "compute/cudnn/redist"
    source = {"root": mirror, "redist": redist, "file": redist / "redistrib_9.40.0.json"}[place]
    own = tmp_path / "own.yaml"
    assert "9.40.0: new release" in _update(
        str(source), "--matrix", str(base), "--output", str(own)
    )
    assert query.newest(load(own)).version == "9.40.0"
    assert (query.release(load(own), "9.10.3") is None) == (place == "file")
    assert own.with_suffix(".msgpack").exists()
    assert load(own).updated == "2026-12-24"


@pytest.mark.parametrize(
    "path", ["", "compute/cudnn/redist", "compute/cudnn/redist/redistrib_9.40.0.json"]
)
def test_update_from_a_server(base: Path, server: str, tmp_path: Path, path: str) -> None:
    own = tmp_path / "own.yaml"
    output = _update(server + path, "--matrix", str(base), "--output", str(own))
    assert "9.40.0: new release" in output
    assert "prefer https" in output
    assert query.release(load(own), "9.40.0").build == "9.40.0.12"


def test_update_twice_finds_nothing_new(base: Path, mirror: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    _update(str(mirror), "--matrix", str(base), "--output", str(own))
    text = own.read_bytes()
    again = _update(str(mirror), "--matrix", str(own), "--output", str(own))
    assert "nothing new" in again
    assert own.read_bytes() == text


def test_an_unreachable_or_empty_source_is_told(server: str, tmp_path: Path) -> None:
    with pytest.raises(DoctorError, match="HTTP 404"):
        list(manifests(server + "redistrib_1.2.3.json"))
    with pytest.raises(DoctorError, match="cannot read"):
        list(manifests("https://127.0.0.1:9/redist/"))
    with pytest.raises(BadInput, match="holds no"):
        list(manifests(str(tmp_path)))
    with pytest.raises(BadInput, match="cannot be read"):
        list(manifests(str(tmp_path / "absent.json")))


def test_an_untrusted_certificate_is_refused(tmp_path: Path) -> None:
    import ssl
    import subprocess

    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]  # noqa: RUF005
        + ["-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "cert.pem"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler
    ) as running:
        running.socket = context.wrap_socket(running.socket, server_side=True)
        threading.Thread(target=running.serve_forever, daemon=True).start()
        with pytest.raises(DoctorError, match="certificate is not trusted"):
            list(manifests(f"https://127.0.0.1:{running.server_port}/redist/"))
        running.shutdown()
