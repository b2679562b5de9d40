"""Plans as a definition file of Apptainer (Singularity)."""

from __future__ import annotations

import shlex

from cudnn_doctor.install.plan import Plan
from cudnn_doctor.report.recipe import commands


def to_apptainer(plan: Plan) -> str:
    """A definition file: the base may be any image with glibc, curl, tar, xz and python3."""
    lines = [
        "Bootstrap: docker",
        "From: ubuntu:24.04",
        "",
        "%labels",
        f"    cudnn {plan.version}",
        f"    cuda {plan.cuda}",
        "",
        "%post",
        "    command -v apt-get >/dev/null && apt-get update -qq"
        " && apt-get install -qq -y --no-install-recommends ca-certificates curl python3 xz-utils",
        "",
        *commands(plan),
    ]
    if plan.method == "tarball":
        root = shlex.quote(plan.target)
        lines += ["", "%environment", f"    export CUDNN_ROOT={root}"]
    return "\n".join(lines)
