"""Mistakes in a matrix are told by file, line and field, never by a traceback."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cudnn_doctor.errors import BadInput
from cudnn_doctor.matrix import source
from cudnn_doctor.matrix.load import default_path, from_yaml, load, mistakes

GOOD = """\
schema: 1
updated: "2026-11-30"
archive_source: doc
sources:
  doc: {how: documented, title: a document}
releases:
  - version: "9.1.0"
    build: "9.1.0.70"
    source: doc
    variants:
      - {cuda: "12", driver: "525.60.13", cc: ["7.5", "9.0"], source: doc}
    archives:
      - {platform: linux-x86_64, cuda: "12", path: a.tar.xz, sha256: SHA}

  # the next one
  - version: "9.2.0"
    source: doc
loaders: {unknown: not established}
foreign_effects: {unknown: not established}
frameworks:
  - {framework: torch, distribution: torch, versions: ">=2", source: doc}
""".replace("SHA", "a" * 64)


def test_the_good_one_is_good() -> None:
    assert mistakes(GOOD.encode(), "m.yaml") == ()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('driver: "525.60.13"', "driver: 525.60", "m.yaml:11: releases[0].variants[0].driver:"),
        ('driver: "525.60.13"', 'driver: "new"', "m.yaml:11: releases[0].variants[0].driver: not"),
        ('driver: "525.60.13"', 'drivr: "525"', "m.yaml:11: releases[0].variants[0]: object"),
        ('version: "9.2.0"', 'version: "9.1.0"', "m.yaml:16: releases[1].version: 9.1.0 is there"),
        ('version: "9.2.0"', 'version: "9.0.0"', "m.yaml:16: releases[1].version: must stand"),
        ('version: "9.2.0"', 'version: "9.2"', "m.yaml:16: releases[1].version: not a release"),
        ('build: "9.1.0.70"', 'build: "9.1.1.70"', "m.yaml:8: releases[0].build: 9.1.1.70 is no"),
        ("a" * 64, "a" * 63 + "g", "m.yaml:13: releases[0].archives[0].sha256: not 64"),
        ("path: a.tar", "path: ../a.tar", "m.yaml:13: releases[0].archives[0].path: must be"),
        ('["7.5", "9.0"]', '["9.0", "7.5"]', "m.yaml:11: releases[0].variants[0].cc: not in"),
        ('"7.5", "9.0"', '"7.5", "sm_90"', "m.yaml:11: releases[0].variants[0].cc[1]: not a"),
        ("source: doc\nload", "source: dok\nload", "m.yaml:17: releases[1].source: no such source"),
        ("    source: doc\nload", "load", "m.yaml:16: releases[1].source: missing"),
        ('versions: ">=2"', 'versions: ">>2"', "m.yaml:21: frameworks[0].versions: not a PEP 440"),
        ('versions: ">=2"', 'versions: ">=2", loader: x', "m.yaml:21: frameworks[0].loader: no"),
        ("schema: 1", "schema: 2", "m.yaml:1: schema: 2 is newer"),
        ("schema: 1", "schema: 0", "m.yaml:1: schema: 0 is not 1"),
        ("schema: 1\n", "", "m.yaml:1: object missing required field `schema`"),
        ("how: documented", "how: rumour", "m.yaml:5: sources.doc.how: invalid"),
        ("archive_source: doc", "archive_source: x", "m.yaml:3: archive_source: no such source"),
        ("releases:\n", "releases:\n\t- x\n", "m.yaml:7: not YAML:"),
        ("loaders: {", "loaders: {{", "m.yaml:19: not YAML:"),
        ("loaders:", "sources:", "m.yaml:18: 'sources' is given twice"),
    ],
)
def test_each_mistake_is_placed(old: str, new: str, message: str) -> None:
    assert old in GOOD
    found = mistakes(GOOD.replace(old, new, 1).encode(), "m.yaml")
    assert found
    assert found[0].startswith(message)


def test_all_semantic_mistakes_are_listed() -> None:
    text = GOOD.replace('driver: "525.60.13"', 'driver: "x"').replace(
        'versions: ">=2"', 'versions: "?"'
    )
    assert len(mistakes(text.encode(), "m.yaml")) == 2


def test_load_raises_the_first(tmp_path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(GOOD.replace('driver: "525.60.13"', "driver: 525.60"))
    with pytest.raises(BadInput, match=r"own.yaml:11: releases\[0\].variants\[0\].driver: .*quote"):
        load(file)
    with pytest.raises(BadInput, match="cannot be read"):
        load(tmp_path / "absent.yaml")
    with pytest.raises(BadInput, match="cannot be read"):
        load(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b"a: " + b"{a: " * 100_000,
        b"a: &x [*x]",
        b"\xff",
        b"\x00",
        b"a: !!timestamp x",
        b"a: !!bool x",
        b"a: !!python/object:os.system x",
        b"? [a]\n: b",
        b"a: 2026-99-99",
        b"1: 2",
        b"",
        b"[]",
        b"---\na: 1\n---\nb: 2",
    ],
)
def test_hostile_text_is_refused(text: bytes) -> None:
    assert mistakes(text, "m.yaml")


def test_without_the_c_parser_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_Loader", yaml.SafeLoader)
    assert mistakes(GOOD.encode(), "m.yaml") == ()
    assert mistakes(b"[" * 5_000, "m.yaml")
    wrong = GOOD.replace('driver: "525.60.13"', "driver: 5").encode()
    assert mistakes(wrong, "m.yaml")[0].startswith("m.yaml:11: ")


LINES = default_path().read_text().splitlines()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """The good matrix with some lines cut, swapped with real ones or with noise in them."""
    lines = GOOD.splitlines()
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        kind = draw(st.sampled_from(["drop", "noise", "cut", "foreign", "token"]))
        if kind == "drop":
            del lines[at]
            lines = lines or [""]
        elif kind == "noise":
            lines[at] = draw(st.text(max_size=30))
        elif kind == "cut":
            lines[at] = lines[at][: draw(st.integers(0, 60))]
        elif kind == "foreign":
            lines[at] = draw(st.sampled_from(LINES))
        else:
            words = [
                "{",
                "[",
                "null",
                "- ",
                "1e5",
                "~",
                "&a",
                "*a",
                "!!int ",
                "true",
                ": ",
                "2020-01-01",
            ]
            cut = draw(st.integers(0, len(lines[at])))
            lines[at] = lines[at][:cut] + draw(st.sampled_from(words)) + lines[at][cut:]
    return "\n".join(lines).encode("utf-8", "surrogatepass")


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged() | st.binary(max_size=200))
def test_fuzzed_text_never_gives_a_traceback(text: bytes) -> None:
    found = mistakes(text, "m.yaml")
    assert all(mistake.startswith("m.yaml") for mistake in found)
    try:
        from_yaml(text, "m.yaml")
    except BadInput as error:
        assert found == (error.what,) or error.what in found
    else:
        assert found == ()
