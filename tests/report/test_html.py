"""The HTML page: everything escaped, nothing fetched, fit for phones, printers and the dark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from support.browser import PROGRAM, Page, browser
from support.hostile import EVIL, SECRETS, evil_report, leaky_machine
from support.runs import RUNS, VERDICT, healthy, judge, shadowed
from typer.testing import CliRunner

from cudnn_doctor.cli.app import app
from cudnn_doctor.machine.loads import Consumer, Load, LoadPlan
from cudnn_doctor.machine.model import CudnnCopy, Framework
from cudnn_doctor.report import formats
from cudnn_doctor.report.outcomes import Run, of_check
from cudnn_doctor.report.page.html import el
from cudnn_doctor.report.page.picture import picture
from cudnn_doctor.report.page.problems import _capital
from cudnn_doctor.report.verify import as_json
from cudnn_doctor.verify.model import StepResult

MANY = of_check(judge(shadowed()), shadowed(), verdicts=(VERDICT,))
PAGES = {**RUNS, "checked and verified": MANY}


def hostile() -> Run:
    """Hostile texts in the report and in every place of the machine that the page shows."""
    machine = msgspec.structs.replace(
        shadowed(),
        taken=EVIL,
        copies=(CudnnCopy(folder=f"/{EVIL}", version=EVIL, kind=EVIL, major=9),),
        frameworks=(Framework(name=EVIL, version=EVIL, environment=EVIL, cuda=EVIL),),
    )
    return of_check(evil_report(), machine, verdicts=(VERDICT,))


class Outline(HTMLParser):
    """Elements and their texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))


@pytest.mark.parametrize("name", [*PAGES, "hostile everywhere"])
def test_elements_nest_and_nothing_is_fetched(name: str) -> None:
    text = formats.render("html", hostile() if name == "hostile everywhere" else PAGES[name])
    outline = Outline(text)
    assert outline.open == []
    assert outline.tags.count("script") == outline.tags.count("style") == 1
    links = [value for key, value in outline.attributes if key in ("src", "href", "srcset")]
    assert links == ["data:,"]
    assert not {key for key, _ in outline.attributes if key.startswith("on")}
    assert "\x1b" not in text and "\x00" not in text


@given(st.text(max_size=40), st.text(max_size=40))
@settings(max_examples=60)
def test_any_text_stays_text(text: str, value: str) -> None:
    element = el("p", text, title=value)
    (only,) = etree.HTML(f"<html><body>{element}</body></html>", None).iter("p")
    assert len(only) == 0


def test_problem_shows_cause_cure_and_place() -> None:
    texts = [data for _, data in Outline(formats.render("html", RUNS["shadowed"])).texts]
    for wanted in ("unset LD_LIBRARY_PATH", "Copy", "Dockerfile:7", "ld-library-path-shadow"):
        assert wanted in texts
    assert any("gives torch 2.8.0 cuDNN 9.14.0" in text for text in texts)


def test_failed_verification_of_a_healthy_machine_is_the_verdict() -> None:
    run = of_check(judge(healthy()), healthy(), verdicts=(VERDICT,))
    texts = [data for _, data in Outline(formats.render("html", run)).texts]
    assert "Verification failed" in texts and "Healthy" not in texts
    assert "cuDNN 9.10.2 in /opt/cudnn/lib: convolve failed" in texts
    assert "cudnn-doctor verify --lib /opt/cudnn/lib --seed 0 -v" in texts


def test_bars_of_a_card_share_one_scale_that_holds_them_all() -> None:
    ratios = (0.5, 1.8)
    steps = [
        StepResult(rung="speed", step=str(ratio), status="pass", data={"ratio": ratio})
        for ratio in ratios
    ]
    done = msgspec.structs.replace(VERDICT, steps=tuple(steps), rungs=(), deaths=())
    text = formats.render("html", of_check(judge(healthy()), healthy(), verdicts=(done,)))
    one, two = (float(width) for width in re.findall(r"width:([\d.]+)%", text))
    (line,) = {float(left) for left in re.findall(r"left:([\d.]+)%", text)}
    assert (one / line, two / line) == pytest.approx(ratios, rel=0.01)
    assert two <= 100


def test_shim_that_is_opened_by_its_path_is_drawn_as_the_shim() -> None:
    folder = "/env/nvidia/cudnn/lib"
    plan = LoadPlan(
        consumer=Consumer(name="torch"),
        shim=Load(
            name=f"{folder}/libcudnn.so.9",
            path=f"{folder}/libcudnn.so.9",
            via="preload",
            because=f"opened as {folder}/libcudnn.so.9",
        ),
    )
    drawn = [data for _, data in Outline(str(picture((plan,), ()))).texts]
    assert "shim" in drawn and "because: opened as \N{HORIZONTAL ELLIPSIS}/libcudnn.so.9" in drawn


def test_picture_shows_shim_parts_and_why() -> None:
    outline = Outline(formats.render("html", RUNS["shadowed"]))
    drawn = [data for tag, data in outline.texts if tag == "text"]
    shim = drawn.index("cuDNN 9.19.0")
    parts = drawn.index("cuDNN 9.14.0")
    assert "shim" in drawn[shim:parts]
    assert any(text.startswith("graph, ops") for text in drawn[parts:])
    assert any(text.startswith("because: LD_LIBRARY_PATH entry 1") for text in drawn[parts:])


def test_names_keep_their_case_at_a_sentence_s_beginning() -> None:
    said = [_capital(text) for text in ("cuDNN computes", "take it", "/x is", "it")]
    assert said == ["cuDNN computes", "Take it", "/x is", "It"]


def test_healthy_page_shows_no_problem_and_no_red() -> None:
    text = formats.render("html", RUNS["healthy"])
    outline = Outline(text)
    assert "What is wrong" not in [data for _, data in outline.texts]
    classes = {
        word for key, value in outline.attributes if key == "class" for word in value.split()
    }
    assert not classes & {"bad", "error", "fail"}


def test_version_is_set_against_the_newest_that_suits() -> None:
    drawn = [
        d for tag, d in Outline(formats.render("html", RUNS["healthy"])).texts if tag == "text"
    ]
    assert "9.10.2 installed, newest that suits" in drawn
    assert any(text.endswith("newest of all") for text in drawn)


def test_command_draws_a_snapshot_and_a_saved_verification(tmp_path: Path) -> None:
    machine, saved, page = tmp_path / "m.json", tmp_path / "v.json", tmp_path / "r.html"
    machine.write_bytes(msgspec.json.encode(leaky_machine(shadowed())))
    saved.write_bytes(as_json([VERDICT]))
    arguments = ["report", "--snapshot", str(machine), "--verify", str(saved), "-o", str(page)]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    text = page.read_text()
    assert "Verification on the GPU" in text
    assert "truncated file" in text
    assert not [secret for secret in SECRETS if secret in text]


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 1}', "\x00", "[" * 5000])
def test_garbage_for_a_verification_is_told(text: str, tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text(text)
    result = CliRunner().invoke(app, ["report", "--verify", str(tmp_path / "v.json"), "-o", "-"])
    assert getattr(result.exception, "exit_code", None) == 7


# -- in a browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if PROGRAM is None:
        pytest.skip("no Chromium is installed")
    with browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


def write(run: Run, folder: Path) -> Path:
    path = folder / "report.html"
    path.write_text(formats.render("html", run))
    return path


@pytest.mark.browser
@pytest.mark.parametrize("name", [*PAGES, "hostile everywhere"])
@pytest.mark.parametrize(("width", "phone"), [(360, True), (390, True), (1280, False)])
@pytest.mark.parametrize("dark", [False, True])
def test_page_fits_and_the_console_is_silent(
    page: Page, name: str, width: int, phone: bool, dark: bool, tmp_path: Path
) -> None:
    run = hostile() if name == "hostile everywhere" else PAGES[name]
    page.requests.clear()
    path = write(run, tmp_path)
    page.show(path, width, phone=phone, dark=dark)
    assert page.console == []
    assert [url for url in page.requests if not url.startswith("data:")] == [path.as_uri()]
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("getComputedStyle(document.body).backgroundColor") == (
        "rgb(16, 21, 18)" if dark else "rgb(245, 246, 244)"
    )


@pytest.mark.browser
def test_text_is_readable_in_both_schemes(page: Page, tmp_path: Path) -> None:
    path = write(MANY, tmp_path)
    for dark in (False, True):
        page.show(path, 390, phone=True, dark=dark)
        ratios = page.run(CONTRASTS)
        assert min(ratios.values()) >= 4.5, ratios


CONTRASTS = """(() => {
  const light = c => { const v = c.map(x => x / 255).map(
    x => x <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
    return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const behind = e => { for (; e; e = e.parentElement) {
    const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; }
    return [255, 255, 255]; };
  const found = {}, SELECTOR = "p,li,h1,h2,h3,code,button,summary,.chip,span.mark,.value";
  for (const e of document.querySelectorAll(SELECTOR)) {
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(behind(e))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    const key = e.tagName + "." + e.className; found[key] = Math.min(found[key] ?? 99, ratio); }
  return found; })()"""


@pytest.mark.browser
def test_copy_button_copies_the_command(page: Page, tmp_path: Path) -> None:
    page.show(write(RUNS["shadowed"], tmp_path), 390, phone=True)
    heard = """new Promise(done => {
        let text = null;
        navigator.clipboard.writeText = async value => { text = value; };
        document.querySelector("button.copy").click();
        setTimeout(() => done([text, document.querySelector("button.copy").textContent]), 100);
    })"""
    assert page.run(heard) == ["unset LD_LIBRARY_PATH", "Copied"]
    assert page.run("document.querySelector('button.copy').offsetHeight") >= 40


@pytest.mark.browser
def test_prints_everything(page: Page, tmp_path: Path) -> None:
    page.show(write(RUNS["shadowed"], tmp_path), 1280)
    assert page.pdf().startswith(b"%PDF")
    page.run("dispatchEvent(new Event('beforeprint'))")
    assert page.run("document.querySelectorAll('details:not([open])').length") == 0
    page.run("dispatchEvent(new Event('afterprint'))")
    assert page.run("document.querySelectorAll('details:not([open])').length") > 0
