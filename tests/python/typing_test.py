# SPDX-License-Identifier: Apache-2.0
"""Type checkers: programs that are right pass, others are refused, and the stub is the module."""

import ast
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tutti

PACKAGE = Path(tutti.__file__).parent
RIGHT = """
import numpy as np
import tutti
from tutti.typing import Key, Value

def update(key: Key, merged: tutti.Array, stored: tutti.Array) -> None:
    stored += merged * 2

async def train(kv: tutti.KVStore, gradient: Value) -> None:
    await kv.push_async("w", gradient, priority=-1)

def main() -> int:
    kv = tutti.create("dist", timeout=60, threads=2)
    weights = {"w": np.zeros((2, 3), np.float32), "b": np.zeros(3, np.float32)}
    kv.init(weights)
    kv.set_optimizer("sgd", learning_rate=0.1)
    scale: float = kv.loss_scale * kv.gradient_scaling()["norm"]
    kv.set_updater(update)
    gradient = kv.allocate((2, 3))
    gradient[...] = kv.rank + 1
    kv.push("w", [gradient, np.ones((2, 3), np.float32)])
    kv.push(["w", "b"], [gradient, weights["b"]], priority=1)
    kv.pull(weights)
    shape: tuple[int, ...] = kv.view("w").shape
    total = float(kv.view("w").numpy().sum())
    found = kv.load("run", may_be_absent=True)
    epoch = int(found["metadata"].get("epoch", "0")) + found["generation"]
    with tutti.PreemptionSignals(), tutti.Communicator.world() as world:
        world.allreduce(gradient, op="max")
        half = world.subgroup([0])
        if half is not None:
            half.barrier()
    try:
        kv.barrier()
    except tutti.TimeoutError as error:
        print(error.rank, error.host, error.key, shape, total, epoch, scale)
    return tutti.EXIT_REQUEUE if kv.stop_requested() else 0
"""
WRONG = """
import numpy as np
import tutti
kv = tutti.create("dist")
a = np.zeros(3, np.float32)
kv.push(3)                                # no value
kv.push(3, a, priority="high")
kv.push(3.5, a)
kv.push(3, 1.0)
kv.pull(3, out=a, casts=True)
kv.view([3])
kv.allocate("large")
kv.set_updater(lambda key, merged: None)
kv.load("run")["epoch"]
kv.rank = 3
tutti.Communicator.world().allreduce(a, op="mean")
tutti.Communicator.world().subgroup([0]).barrier()
tutti.create(3)
kv.shard()
"""


def copy_package(folder):
    """To `folder`/tutti: what is installed is not the program's to check."""
    shutil.copytree(PACKAGE, folder / "tutti",
                    ignore=shutil.ignore_patterns("*.so", "__pycache__"))


def run_mypy(folder, *words):
    pytest.importorskip("mypy")
    copy_package(folder)
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", folder / "cache",
         *words], text=True, capture_output=True, cwd=folder,
        env={"MYPYPATH": str(folder), "PATH": "/usr/bin:/bin"})


def lines_that_are_wrong():
    lines = WRONG.splitlines()
    first = next(number for number, line in enumerate(lines, 1) if "no value" in line)
    return set(range(first, len(lines) + 1))


def check(program, folder):
    file = folder / "program.py"
    file.write_text(textwrap.dedent(program))
    package = folder / "tutti"
    names = sorted(one.name for one in PACKAGE.glob("*.py*"))
    return run_mypy(folder, "--strict", file, *(package / name for name in names))


def test_a_program_that_is_right_passes(tmp_path):
    done = check(RIGHT, tmp_path)
    assert done.stdout + done.stderr == "" and done.returncode == 0


def test_each_wrong_line_is_refused(tmp_path):
    done = check(WRONG, tmp_path)
    refused = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error: " in line}
    assert refused == lines_that_are_wrong(), done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("node") is None, reason="pyright needs node")
def test_pyright_says_so_too(tmp_path):
    pytest.importorskip("pyright")
    copy_package(tmp_path)
    for name, program in (("right", RIGHT), ("wrong", WRONG)):
        (tmp_path / f"{name}.py").write_text(program)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(
        {"include": ["*.py", "tutti/*.py*"], "strict": ["*.py"],
         "reportMissingModuleSource": False}))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable],
        text=True, capture_output=True, cwd=tmp_path,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"})
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] >= 8
    refused = {one["range"]["start"]["line"] + 1 for one in found["generalDiagnostics"]
               if one["file"].endswith("/wrong.py")}
    others = [one for one in found["generalDiagnostics"] if not one["file"].endswith("/wrong.py")]
    assert refused == lines_that_are_wrong() and others == []


def test_the_part_for_torch_uses_names_that_are_there(tmp_path):
    """Where torch is not installed, too, which is then of any type: no other test runs it there."""
    names = sorted(one.relative_to(PACKAGE) for folder in ("torch", "horovod")
                   for one in (PACKAGE / folder).rglob("*.py"))
    done = run_mypy(tmp_path, "--check-untyped-defs", "--ignore-missing-imports",
                    "--follow-imports=silent", "--no-site-packages",
                    *(tmp_path / "tutti" / name for name in names))
    assert done.stdout + done.stderr == "" and done.returncode == 0


def parameters(function):
    given = function.args
    names = [one.arg for one in given.posonlyargs + given.args + given.kwonlyargs]
    names += [one.arg for one in (given.vararg, given.kwarg) if one is not None]
    return [name for name in names if name != "self"]


def of_module(function):
    """The parameters of a function of the module, by the first line of its help."""
    signature = function.__doc__.splitlines()[0]
    header = signature.replace("tutti.", "").replace("_core.", "")
    return parameters(ast.parse(f"{header}: ..." if header.startswith("def ")
                                else f"def {header}: ...").body[0])


def functions(body):
    """By name, the overload that has most parameters."""
    found = {}
    for one in body:
        if isinstance(one, ast.FunctionDef) and len(parameters(one)) >= len(
                found.get(one.name, [])):
            found[one.name] = parameters(one)
    return found


def public(names):
    return {name for name in names if not name.startswith("_")}


def test_the_stub_has_what_the_module_has():
    stub = ast.parse((PACKAGE / "_core.pyi").read_text()).body
    classes = {one.name: one for one in stub if isinstance(one, ast.ClassDef)}
    assert public(classes) == {name for name in public(vars(tutti._core))
                               if isinstance(getattr(tutti._core, name), type)}
    compared = 0
    for name, kind in [(None, tutti._core)] + [(name, getattr(tutti._core, name))
                                               for name in classes]:
        own = functions(stub if name is None else classes[name].body)
        if name is not None:
            assert public(own) == public(vars(kind)), name
        for member in public(own):
            function = getattr(kind, member)
            if type(function).__name__ in ("nb_method", "nb_func"):
                assert own[member] == of_module(function), f"{name}.{member}"
                compared += 1
    assert compared > 50


@pytest.mark.parametrize("kind", [tutti.KVStore, tutti.Communicator, tutti.Optimizer,
                                  tutti.Pending, tutti.PreemptionSignals, tutti.Array, tutti])
def test_everything_public_has_a_help(kind):
    assert kind.__doc__
    for name in public(vars(kind)):
        member = getattr(kind, name)
        text = (member.__doc__ or "").splitlines()
        if type(member).__name__ in ("nb_method", "nb_func"):
            text = text[2:]
        if callable(member) or isinstance(member, property):
            assert any(line.strip().endswith((".", ":", "}")) for line in text), f"{kind} {name}"
