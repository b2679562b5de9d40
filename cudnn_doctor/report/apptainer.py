"""Plans as a definition file of Apptainer (Singularity)."""

from __future__ import annotations

from cudnn_doctor.install.plan import Plan
from cudnn_doctor.report.recipe import commands, is_from_index, notes, variables


def to_apptainer(plan: Plan) -> str:
    """A definition file: the base may be any image with glibc, curl, tar, xz and python3 (with
    pip, where the plan takes a wheel from the index)."""
    lines = [
        *notes(plan),
        "Bootstrap: docker",
        "From: ubuntu:24.04",
        "",
        "%labels",
        f"    cudnn {plan.version}",
        f"    cuda {plan.cuda}",
        "",
        "%post",
        *([] if plan.method == "wheel" else [_tools(plan), ""]),
        *commands(plan),
    ]
    if found := variables(plan):
        lines += ["", "%environment", *(f"    export {variable}" for variable in found)]
    return "\n".join(lines)


def _tools(plan: Plan) -> str:
    pip = " python3-pip" if is_from_index(plan) else ""
    return (
        "    command -v apt-get >/dev/null && apt-get update -qq && DEBIAN_FRONTEND=noninteractive"
        " apt-get install -qq -y --no-install-recommends"
        f" ca-certificates curl python3{pip} xz-utils"
    )
