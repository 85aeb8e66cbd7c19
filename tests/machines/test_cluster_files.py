"""The files for ssh, Slurm and Kubernetes: run with programs that only note how they are called."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from hogwild.cli.train import train
from tests.conftest import ROOT

FOLDER = ROOT / "scripts" / "examples" / "cluster"
NODES = ("node0", "node1", "node2")


def command() -> Any:
    app = typer.Typer()
    app.command()(train)
    return typer.main.get_command(app)


@pytest.fixture
def called(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Run a script; return how hogwild was called on each machine, as options by name."""

    def run(words: list[str], **environ: str) -> list[dict[str, Any]]:
        log = tmp_path / "log"
        programs = {
            "hogwild": f'printf "%s\\n" "$(printf "%q " "$@")" >> {log}',  # in one write: several run at once
            "ssh": '[ "$1" = -t ] && shift; shift; eval "$@"',
            "scontrol": f"printf '%s\\n' {' '.join(NODES)}",
            "srun": 'shift; for SLURM_NODEID in 0 1 2; do export SLURM_NODEID; "$@"; done',
        }
        for name, code in programs.items():
            path = tmp_path / name
            path.write_text(f"#!/usr/bin/env bash\n{code}\n")
            path.chmod(0o755)
        environ = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", **environ}
        subprocess.run(words, check=True, env=environ, cwd=tmp_path)
        found = []
        for line in log.read_text().splitlines():
            name, *words = shlex.split(line)
            assert name == "train"
            found.append(command().make_context("train", words).params)
        return sorted(found, key=lambda each: each["machine"])

    return run


def check(machines: list[dict[str, Any]], count: int, meet: str) -> None:
    assert [each["machine"] for each in machines] == [*range(count)]
    assert {(each["machines"], each["meet"]) for each in machines} == {(count, meet)}
    assert machines[0]["out"] is not None


def test_ssh(called: Callable[..., list[dict[str, Any]]]) -> None:
    machines = called(["bash", str(FOLDER / "ssh.sh"), "/data/store", *NODES])
    check(machines, 3, "node0:29500")


def test_slurm(called: Callable[..., list[dict[str, Any]]]) -> None:
    variables = {
        "SLURM_JOB_NODELIST": "node[0-2]",
        "SLURM_NNODES": "3",
        "SLURM_JOB_ID": "7",
        "SLURM_CPUS_PER_TASK": "4",
    }
    machines = called(["bash", str(FOLDER / "slurm.sbatch"), "/shared/store"], **variables)
    check(machines, 3, "node0:29500")
    assert {(each["checkpoint"], each["resume"]) for each in machines} == {("checkpoint-7", True)}


def test_kubernetes(called: Callable[..., list[dict[str, Any]]]) -> None:
    service, job = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())
    spec = job["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    words = [*container["command"], *container["args"]]
    machines = [called(words, JOB_COMPLETION_INDEX=f"{index}")[-1] for index in range(spec["completions"])]
    name = job["metadata"]["name"]
    check(machines, spec["parallelism"], f"{name}-0.{spec['template']['spec']['subdomain']}:29500")
    assert service["metadata"]["name"] == spec["template"]["spec"]["subdomain"]
    assert service["spec"]["selector"] == {"job-name": name}
