"""Names of variables and costs: kept, checked, and no part of what a program is."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

import dflearn as dfl
from dflearn.estimator import saving


def test_names_are_kept() -> None:
    program = dfl.Program(
        A=[[1, 1]], b=[1], S=[[2], [3]], variable_names=["a", "b"], cost_names=["price"], integer=True
    )
    assert program.variable_names == ("a", "b")
    assert program.cost_names == ("price",)
    assert program.relax().variable_names == ("a", "b")
    assert pickle.loads(pickle.dumps(program)).cost_names == ("price",)
    assert replace(program, S=None, cost_names=program.variable_names).cost_names == ("a", "b")


def test_names_survive_a_file(tmp_path: Path) -> None:
    program = dfl.Program(A=[[1, 1]], b=[1], variable_names=["a", "b"], cost_names=["α", "flow[1,2]"])
    for name, saved in (("named", program), ("plain", replace(program, variable_names=None, cost_names=None))):
        saving.write(tmp_path / name, {}, {}, saved)
        read = saving.read(tmp_path / name).program
        assert (read.variable_names, read.cost_names) == (saved.variable_names, saved.cost_names)


def test_names_are_optional_and_no_part_of_the_fingerprint() -> None:
    plain = dfl.Program(A=[[1, 1]], b=[1])
    assert plain.variable_names is plain.cost_names is None
    assert replace(plain, variable_names=("a", "b"), cost_names=("y", "z")).fingerprint == plain.fingerprint


@pytest.mark.parametrize("field", ["variable_names", "cost_names"])
@pytest.mark.parametrize(
    ("names", "message"),
    [(["a"], "2 strings"), ("ab", "2 strings"), (["a", 1], "2 strings"), (["a", "a"], "'a' more than once")],
)
def test_bad_names(field: str, names: object, message: str) -> None:
    with pytest.raises(dfl.errors.ProgramError, match=f"{field} .*{message}"):
        dfl.Program(A=[[1, 1]], b=[1], **{field: names})
