"""From steps and deaths to rungs, known faults and the text of the report."""

from __future__ import annotations

import pytest

from cudnn_doctor.cli.verify import _exit_code
from cudnn_doctor.matrix.load import load
from cudnn_doctor.report.style import Style
from cudnn_doctor.report.verify import as_text
from cudnn_doctor.verify import ladder, probes
from cudnn_doctor.verify.model import (
    Copy,
    Death,
    KnownFault,
    Level,
    Rung,
    StepResult,
    Verdict,
)
from cudnn_doctor.verify.parent import Outcome
from cudnn_doctor.verify.prove import _persist, judge_rungs, known_faults

COPY = Copy(
    folder="/opt/cudnn/lib", shim="libcudnn.so.9", version="9.14.0", cuda="13",
    libraries=("libcudnn.so.9", "libcudnn_adv.so.9", "libcudnn_graph.so.9"),
)  # fmt: skip
PLAIN = Style(colour=False, unicode=False)


def probe(issue: str, status: str, **data: object) -> StepResult:
    return StepResult(
        rung="convolve", step=probes.PREFIX + issue, status=status, detail="why", data=data
    )  # type: ignore[arg-type]


def test_a_probe_answers_for_the_issue_that_the_matrix_lists() -> None:
    matrix = load(None)
    steps = (probe("conv3d-lowprec", "pass"), probe("depthwise-sequence", "fail", wrong=True))
    found = {k.issue: k for k in known_faults(matrix, COPY, "9.0", steps)}
    assert (found["conv3d-lowprec"].listed, found["conv3d-lowprec"].found) == (True, "has not")
    assert found["depthwise-sequence"].found == "has"


def test_a_release_that_is_not_listed_may_still_be_found_faulty() -> None:
    newer = Copy(folder="/c", shim="libcudnn.so.9", version="9.19.0")
    steps = (probe("conv3d-lowprec", "fail", wrong=True),)
    found = {k.issue: k for k in known_faults(load(None), newer, "9.0", steps)}
    assert (found["conv3d-lowprec"].listed, found["conv3d-lowprec"].found) == (False, "has")


def test_a_known_fault_of_the_release_fails_no_rung_and_any_other_wrong_result_does() -> None:
    fine = StepResult(rung="convolve", step="3x3", status="pass")
    wrong = probe("conv3d-lowprec", "fail", wrong=True)
    newer = Copy(folder="/c", shim="libcudnn.so.9", version="9.19.0")
    for copy, status in ((COPY, "pass"), (newer, "fail")):
        known = known_faults(load(None), copy, "9.0", (fine, wrong))
        rungs = {r.name: r.status for r in judge_rungs((fine, wrong), (), known, "default")}
        assert rungs["convolve"] == status
    assert [k.confirmed for k in known if k.issue == "conv3d-lowprec"] == [False]


def test_a_rung_without_any_work_is_not_passed() -> None:
    mapped = StepResult(rung="convolve", step="mapped files", status="pass")
    refused = StepResult(rung="convolve", step="3x3", status="skip", detail="no engine")
    rung = next(r for r in judge_rungs((refused, mapped), (), (), "quick") if r.name == "convolve")
    assert (rung.status, rung.why) == ("skip", "no engine")


def test_a_probe_that_failed_for_another_reason_accuses_nobody() -> None:
    for status in ("fail", "skip"):
        known = known_faults(load(None), COPY, "9.0", (probe("conv3d-lowprec", status),))
        assert next(k.found for k in known if k.issue == "conv3d-lowprec") == "not run"


def test_every_probe_names_an_issue_of_the_matrix() -> None:
    ids = {issue.id for issue in load(None).issues if issue.kind == "wrong-results"}
    assert {p.issue for p in probes.PROBES} <= ids


@pytest.mark.parametrize("level", ["quick", "default", "full"])
def test_step_names_are_unique_within_a_rung(level: Level) -> None:
    for steps in (
        ladder.convolve_steps(level),
        ladder.library_steps(level),
        ladder.speed_steps(level, (), ""),
    ):
        names = [step.name for step in steps]
        assert len(names) == len(set(names))


def test_higher_levels_do_all_that_lower_ones_do() -> None:
    for steps in (ladder.convolve_steps, ladder.library_steps):
        default, full = ({s.name for s in steps(level)} for level in ("default", "full"))
        assert default < full


GOLDEN = """\
cuDNN 9.14.0 in /opt/cudnn/lib
  on GPU 0, seed 3, 1.5 s
  + files                   pass     3 steps
  x convolve                fail     3x3 fp16 nhwc filter: 1 of 576 elements ...
      x 3x3 fp16 nhwc filter: 1 of 576 elements are wrong; the worst, [53, 0, 1,
        2], is 90.1875 instead of 90.02128
    the child process ended (SIGBUS) at convolve: 1x1 bf16
      cause: a library file is truncated, or changed while it was in use
      | last words
  known wrong results of releases
    conv3d-lowprec  listed for this release; this copy does not have it here
"""


def verdict() -> Verdict:
    wrong = StepResult(
        rung="convolve", step="3x3 fp16 nhwc filter", status="fail",
        detail="1 of 576 elements are wrong; the worst, [53, 0, 1, 2], is 90.1875 instead of "
        "90.02128",
    )  # fmt: skip
    cause = "a library file is truncated, or changed while it was in use"
    return Verdict(
        copy=COPY, gpu="GPU 0", seed=3, seconds=1.5, failed=True,
        rungs=(
            Rung(name="files", status="pass", why="3 steps"),
            Rung(name="convolve", status="fail", why=f"{wrong.step}: {wrong.detail}"),
        ),
        steps=(wrong,),
        deaths=(Death(how="SIGBUS", rung="convolve", step="1x1 bf16", cause=cause,
                      log="last words"),),
        known=known_faults(load(None), COPY, "9.0", (probe("conv3d-lowprec", "pass"),)),
    )  # fmt: skip


def test_the_report_is_as_written_here() -> None:
    assert as_text([verdict()], PLAIN) == GOLDEN


def test_no_line_of_the_report_is_wider_than_a_terminal() -> None:
    for verbose in (False, True):
        assert max(map(len, as_text([verdict()], PLAIN, verbose=verbose).splitlines())) <= 80


@pytest.mark.parametrize(
    ("found", "listed", "failed", "ran", "code"),
    [
        ("has not", True, False, "pass", 0),
        ("has", True, False, "pass", 1),
        ("has", True, True, "pass", 6),
        ("has", False, False, "pass", 0),  # (not listed: its rung has failed by it)
        ("not run", True, False, "skip", 3),
    ],
)
def test_the_exit_code_tells_a_known_fault_from_a_failure(
    found: str, listed: bool, failed: bool, ran: str, code: int
) -> None:
    fault = KnownFault(issue="i", title="t", listed=listed, found=found)  # type: ignore[arg-type]
    rungs = tuple(Rung(name=n, status=ran) for n in ("initialise", "convolve"))  # type: ignore[arg-type]
    one = Verdict(copy=COPY, known=(fault,), failed=failed, rungs=rungs)
    assert int(_exit_code([one])) == code


def test_work_goes_on_in_a_new_child_after_the_context_was_lost() -> None:
    asked: list[tuple[str, ...]] = []

    def child(done: tuple[str, ...]) -> Outcome:
        asked.append(done)
        number = len(asked)
        step = StepResult(rung="convolve", step=f"step {number}", status="fail")
        return Outcome((step,), {"lost": True} if number < 3 else {}, None)

    work = _persist(child)
    assert [s.step for s in work.steps] == ["step 1", "step 2", "step 3"]
    assert asked[2] == ("convolve: step 1", "convolve: step 2")
    assert not work.deaths
    assert "lost" not in work.facts
