"""The authored data: every form has an example that it matches, every id is known."""

from __future__ import annotations

import io

import pytest

from cudnn_doctor.explain.case import Case
from cudnn_doctor.explain.catalogue import load_diagnoses, load_signatures
from cudnn_doctor.explain.match import scan
from cudnn_doctor.explain.model import Signature
from cudnn_doctor.explain.remedies import remedies_for

SIGNATURES = load_signatures()


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda s: s.id)
def test_examples_match_through_the_whole_scan(signature: Signature) -> None:
    assert signature.examples, "a record without an example"
    for example in signature.examples:
        found = scan(io.BytesIO(example.encode())).observations
        assert signature.id in {o.signature.id for o in found}, example


def test_ids_are_unique_and_diagnoses_known() -> None:
    ids = [s.id for s in SIGNATURES]
    assert len(ids) == len(set(ids))
    known = load_diagnoses()
    for signature in SIGNATURES:
        assert set(signature.supports) | set(signature.rules_out) <= set(known), signature.id
        assert all(0 < weight < 1 for weight in signature.supports.values()), signature.id


def test_every_diagnosis_has_a_title_and_most_have_a_remedy() -> None:
    case = Case((), None)
    for name, about in load_diagnoses().items():
        assert about.title
        for remedy in remedies_for(name, case):
            assert remedy.title and all(command.strip() for command in remedy.commands)
    without = [name for name in load_diagnoses() if not remedies_for(name, case)]
    assert set(without) <= {
        "no-nvidia-gpu",
        "cudnn-version-regression",
        "cudnn-heuristic-regression",
    }
