"""Plans as a definition file of Apptainer (Singularity)."""

from __future__ import annotations

from cudnn_doctor.install.plan import Plan
from cudnn_doctor.report.recipe import commands, notes, variables

_TOOLS = (
    "    command -v apt-get >/dev/null && apt-get update -qq"
    " && apt-get install -qq -y --no-install-recommends ca-certificates curl python3 xz-utils"
)


def to_apptainer(plan: Plan) -> str:
    """A definition file: the base may be any image with glibc, curl, tar, xz and python3."""
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
        *([] if plan.method == "wheel" else [_TOOLS, ""]),
        *commands(plan),
    ]
    if found := variables(plan):
        lines += ["", "%environment", *(f"    export {variable}" for variable in found)]
    return "\n".join(lines)
