"""The engine: crashes and skips become results, causes are linked, suppression, verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import msgspec
import pytest
import yaml
from check_builders import MATRIX, healthy, judge

from cudnn_doctor.checks import registry, run
from cudnn_doctor.checks.causes import CAUSES, link_causes
from cudnn_doctor.checks.context import Context
from cudnn_doctor.checks.model import CheckResult, Finding, Report
from cudnn_doctor.checks.suppress import STALE, parse_suppression, suppress
from cudnn_doctor.checks.verdict import exit_code, verdict
from cudnn_doctor.errors import DoctorError, ExitCode
from cudnn_doctor.machine.model import Machine

TODAY = date(2026, 11, 30)


def test_a_rule_that_crashes_becomes_a_result_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(context: Context) -> Iterator[Finding]:
        yield Finding(id="x", severity="info", title="before")
        raise KeyError("lost")

    rules = (registry.Rule("broken", "cudnn", broken), *registry.all_rules())
    monkeypatch.setattr(run, "all_rules", lambda: rules)
    report = run.run_checks(healthy(), MATRIX)
    assert report.results[0].status == "crash"
    assert report.results[0].reason == "KeyError: 'lost'"
    assert len(report.results) == len(rules)
    assert verdict(report, healthy()) == "cannot-tell"


def test_an_empty_description_is_neither_healthy_nor_sick() -> None:
    machine = Machine(partial=True)
    report = judge(machine)
    assert report.findings == ()
    assert verdict(report, machine) == "cannot-tell"
    assert exit_code("cannot-tell", "error") is ExitCode.CANNOT_TELL


def test_skipped_rules_tell_which_fact_they_lack() -> None:
    reasons = {r.rule: r.reason for r in judge(Machine(partial=True)).results if r.status == "skip"}
    assert reasons["driver-too-old"] == "the driver's version is not known"
    assert all(reasons.values())


def test_no_gpu_skips_the_rules_about_gpu_and_driver() -> None:
    skipped = {r.rule for r in judge(healthy(), no_gpu=True).results if r.status == "skip"}
    declared = {rule.id for rule in registry.all_rules() if rule.gpu}
    assert declared <= skipped


def test_only_and_skip_choose_rules_by_id_and_category() -> None:
    assert {r.category for r in judge(healthy(), only=("packages",)).results} == {"packages"}
    assert [r.rule for r in judge(healthy(), only=("pip-pin-conflict",)).results] == [
        "pip-pin-conflict"
    ]
    assert "cudnn" not in {r.category for r in judge(healthy(), skip=("cudnn",)).results}


def test_rules_are_ordered_by_category_and_described() -> None:
    order = [registry.CATEGORIES.index(rule.category) for rule in registry.all_rules()]
    assert order == sorted(order)
    assert all(rule.function.__doc__ for rule in registry.all_rules())


def test_causes_name_only_diagnoses_that_rules_make() -> None:
    named = set(CAUSES) | {cause for causes in CAUSES.values() for cause in causes}
    assert named <= registry.known_ids()


def test_a_consequence_names_its_root_cause_only_in_the_same_place() -> None:
    cause = Finding(id="cudnn-wheel-clobbered", severity="error", title="c", subject="/a")
    near = Finding(id="wheel-files-missing", severity="error", title="n", subject="/a/lib")
    far = Finding(id="wheel-files-missing", severity="error", title="f", subject="/b")
    result = CheckResult(rule="r", category="cudnn", status="fail", findings=(near, far, cause))
    linked = link_causes((result,))[0].findings
    assert [f.caused_by for f in linked] == ["cudnn-wheel-clobbered", "", ""]
    assert [f.id for f in Report(results=link_causes((result,))).findings][-1] == near.id


def report_of(severity: str) -> Report:
    finding = Finding(id="tmp-full", severity=severity, title="t")  # type: ignore[arg-type]
    status = "fail" if severity == "error" else "warn"
    return Report(
        results=(
            CheckResult(rule="tmp-full", category="system", status=status, findings=(finding,)),
        )  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("severity", "fail_on", "code"),
    [
        ("error", "error", 1),
        ("warning", "error", 0),
        ("warning", "warning", 1),
        ("error", "never", 0),
        ("info", "warning", 0),
    ],
)
def test_exit_codes(severity: str, fail_on: str, code: int) -> None:
    said = verdict(report_of(severity), healthy())
    assert exit_code(said, fail_on) == code  # type: ignore[arg-type]


def test_suppression_lowers_to_a_note_that_is_still_there() -> None:
    entry = parse_suppression("tmp-full=small on purpose@2026-12-31")
    report = suppress(report_of("error"), (entry,), TODAY)
    (found,) = report.findings
    assert found.severity == "info"
    assert found.suppressed == "small on purpose (until 2026-12-31)"
    assert report.results[0].status == "pass"


def test_suppression_holds_on_its_last_day_and_not_after_it() -> None:
    entry = parse_suppression("tmp-full=x@2026-11-30")
    assert suppress(report_of("error"), (entry,), TODAY).worst == "info"
    later = suppress(report_of("error"), (entry,), date(2026, 12, 1))
    assert later.worst == "error"
    assert [f.id for f in later.findings] == ["tmp-full", STALE]


def test_suppression_that_matches_nothing_is_a_warning() -> None:
    entry = parse_suppression("disk-full=x@2027-01-01")
    report = suppress(report_of("info"), (entry,), TODAY)
    assert report.findings[0].id == STALE
    assert report.worst == "warning"


@pytest.mark.parametrize(
    "text",
    ["tmp-full", "tmp-full=x", "tmp-full=x@soon", "tmp-full=x@2026-13-01", "tmp-fool=x@2026-12-01"],
)
def test_bad_suppressions_are_usage_errors(text: str) -> None:
    with pytest.raises(DoctorError) as caught:
        parse_suppression(text)
    assert caught.value.exit_code is ExitCode.USAGE


def test_every_finding_is_short_enough_and_has_evidence_or_reason() -> None:
    machine = msgspec.structs.replace(healthy(), gpus=(), pci=())
    for finding in judge(machine).findings:
        assert len(finding.title) < 100
        assert finding.seen
        assert finding.why


def test_what_is_told_as_not_shown_is_not_shown() -> None:
    assert not set(registry.NOT_SHOWN) & registry.known_ids()


def test_the_whole_vocabulary_is_shown_or_told_why_not() -> None:
    shared = Path(__file__).parents[3] / "shared" / "cases" / "diagnoses.yaml"
    if not shared.is_file():
        pytest.skip("the shared vocabulary is not here")
    vocabulary = set(yaml.safe_load(shared.read_text(encoding="utf-8")))
    assert vocabulary <= registry.known_ids() | set(registry.NOT_SHOWN)
