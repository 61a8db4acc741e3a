"""What imports what: upward only inside the package, nothing optional in the core, and all extras in one process."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

import dflearn

SOURCE = Path(dflearn.__file__).parent
ROOT = SOURCE.parents[1]
MODULES = sorted(SOURCE.rglob("*.py"))
LAZY_PACKAGES = ["dflearn", "dflearn.solvers", "dflearn.layers", "dflearn.losses", "dflearn.testing"]

# A module may import those above it in the table of docs/explanation/architecture.md, and its own package.
TABLE = re.search(
    r"<!-- import order -->\n(.*?)<!-- end -->",
    (ROOT / "docs" / "explanation" / "architecture.md").read_text(),
    re.DOTALL,
)
assert TABLE is not None
ORDER = ["_version", *re.findall(r"^\| `(\w+)`", TABLE[1], re.MULTILINE), "__main__"]

OPTIONAL = {
    "cvxpy": ["cvxpy", "cvxpylayers", "diffcp"],
    "gurobi": ["gurobipy"],
    "lightning": ["lightning"],
    "mlflow": ["mlflow"],
    "parquet": ["pyarrow"],
    "plot": ["matplotlib"],
    "pyomo": ["pyomo"],
    "ray": ["ray"],
    "sklearn": ["sklearn", "safetensors"],
    "tensorboard": ["tensorboard"],
    "bench": ["pyepo"],
    "scip": ["pyscipopt"],
    "docs": ["mkdocs", "latex2mathml"],
    "release": ["build", "readme_renderer", "twine"],
    "test": ["pandas"],
}

FRONT_ENDS: dict[str, list[str | None]] = {
    "from_cvxpy": [None, None],
    "from_gurobi": [None],
    "from_pyomo": [None],
    "from_pyepo": [None],
    "to_pyepo": ["program"],
}


def dotted(path: Path) -> str:
    """The module's name: `src/dflearn/solvers/highs.py` is `dflearn.solvers.highs`."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    """The entry of ORDER that a module belongs to."""
    return module.split(".")[1]


@cache
def imports(path: Path) -> list[str]:
    """Every module of dflearn that a file imports, wherever in the file it does so."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    return [name for name in found if name.startswith("dflearn.")]


def run(code: str) -> str:
    """What `code` prints in a fresh interpreter in which a warning is an error."""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


BLOCK = """
import sys
class Block:
    packages = ()
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] in self.packages:
            raise ModuleNotFoundError(f'No module named {name!r} (blocked by the test)', name=name)
sys.meta_path.insert(0, Block())
"""


def blocking(*packages: str) -> str:
    """Code that makes the import of `packages` fail, as if they were not installed, and of no other (after `BLOCK`)."""
    return f"Block.packages = {packages!r}\n"


def test_imports_point_upward() -> None:
    for path in MODULES:
        module = dotted(path)
        for imported in imports(path) if module != "dflearn" else ():
            here, there = part_of(module), part_of(imported)
            if there in (here, "__version__"):
                continue
            assert there in ORDER, f"{module} imports {imported}, which has no place in ORDER"
            assert ORDER.index(there) < ORDER.index(here), f"{module} imports {imported}, which stands below it"


# Modules that import one another, and classes with more than two methods named solve*: what is still to be mended.
CYCLIC = {
    "solvers": "base callable construction convex gurobi highs model oracles scip structured task",
    "tables": "regressor saving",
}
MANY_SOLVES = {"Hard", "Smoothed", "Solver"}


def reached(start: str, graph: dict[str, set[str]]) -> set[str]:
    """The modules that one imports, directly or by others."""
    found: set[str] = set()
    rest = [*graph[start]]
    while rest:
        one = rest.pop()
        if one not in found:
            found.add(one)
            rest += graph[one]
    return found


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES if path.parent != SOURCE}), ids=dotted)
def test_modules_of_a_folder_import_one_another_in_one_direction(folder: Path) -> None:
    """Type-only imports and those inside of functions count too; a name that the folder lends is imported from its module."""
    names = {dotted(path): path for path in folder.glob("*.py") if path.name != "__init__.py"}
    graph = {name: {one for one in imports(path) if one in names} for name, path in names.items()}
    cyclic = {name.rpartition(".")[2] for name in graph if name in reached(name, graph)}
    assert cyclic == set(CYCLIC.get(folder.name, "").split())


def test_no_class_has_more_than_two_methods_named_solve() -> None:
    found = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                methods = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
                found[node.name] = [name for name in methods if name.lstrip("_").startswith("solve")]
    assert {name for name, methods in found.items() if len(methods) > 2} <= MANY_SOLVES


def test_only_its_own_commands_know_the_paper() -> None:
    knowing = {
        path.name
        for path in SOURCE.glob("cli/*.py")
        if any(name.startswith("dflearn.studies.paper") for name in imports(path))
    }
    assert knowing == {"paper.py"}


def test_every_part_has_its_place_in_the_document() -> None:
    parts = {part_of(dotted(path)) for path in MODULES if path != SOURCE / "__init__.py" and path.read_text()}
    assert parts == set(ORDER), "the table of docs/explanation/architecture.md lists the parts in the order of imports"


@pytest.mark.parametrize("package", [*LAZY_PACKAGES, "dflearn.problems"])
def test_public_names_resolve(package: str) -> None:
    module = importlib.import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None
        assert name in dir(module)


def test_every_optional_package_is_known_here() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) == {*OPTIONAL, "all"}
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines()}
    for extra, requirements in extras.items():
        for requirement in requirements:
            name = re.match(r"[\w-]+", requirement)
            assert name is not None
            assert name[0] in pinned | {"dflearn"}, f"{extra}: {requirement} is not pinned in constraints.txt"


TORCH_PARTS = """
import importlib
import numpy as np, torch
import dflearn
for package in ("dflearn.program", "dflearn.data", "dflearn.layers", "dflearn.losses"):
    module = importlib.import_module(package)
    for name in getattr(module, "__all__", ()):
        getattr(module, name)

class Box(dflearn.Solver):
    'min cᵀw over 0 ≤ w ≤ 1, in closed form.'
    identity = "box"
    def __init__(self, program):
        self.program, self.objective = program, program.objective
    def _solve(self, c, sides, start):
        from dflearn.solvers.base import Raw
        w = (c < 0).astype(float)
        value = (c * w).sum(1)
        return Raw(w, np.zeros(len(c), np.int8), value, value)

solver = Box(dflearn.Program(upper=1, n=3))
predicted = torch.tensor([[1.0, -2.0, 3.0]], requires_grad=True)
costs = -predicted.detach()
batch = dflearn.Batch(predicted.detach(), costs, solver.solve(costs).decision)
loss = dflearn.losses.SPOPlus(dflearn.Exact(solver))(predicted, batch)
loss.sum().backward()
print(loss.tolist(), predicted.grad.tolist())
"""
EVERY_MODULE = f"""
from dflearn.errors import MissingExtraError
def extra(error):
    return str(error).partition("dflearn[")[2].partition("]")[0]
for name in {[dotted(path) for path in MODULES if path.name != "__main__.py"]!r}:
    try:
        importlib.import_module(name)
    except MissingExtraError as error:
        print(name, extra(error))
program = dflearn.from_linprog(A_ub=[[1, 1]], b_ub=[1])
for name, arguments in {FRONT_ENDS!r}.items():
    try:
        getattr(dflearn, name)(*[program if one == "program" else one for one in arguments])
    except MissingExtraError as error:
        print(name, extra(error))
"""


def test_core_imports_without_any_extra() -> None:
    """Programs, the torch parts of layers and the losses work where numba and highspy are missing too (a GPU image, say).
    With these, every module imports where only the core dependencies are installed, or names the extra that it is made for."""
    blocked = [package for packages in OPTIONAL.values() for package in packages]
    without_solvers = blocking(*blocked, "numba", "llvmlite", "highspy", "clarabel") + TORCH_PARTS
    first, *others = run(BLOCK + without_solvers + blocking(*blocked) + EVERY_MODULE).splitlines()
    # 2ŷ − y = (3, −6, 9): w̃ = (0, 1, 0), w* = (1, 0, 1), so the loss is 12 + 6 and its gradient 2 (w* − w̃).
    assert first == "[18.0] [[2.0, -2.0, 2.0]]"
    made_for: dict[str, str] = dict(line.split() for line in others)
    front_ends = {name: made_for.pop(name) for name in FRONT_ENDS}
    assert list(front_ends.values()) == ["cvxpy", "gurobi", "pyomo", "bench", "bench"]
    with_sklearn = ("table_model", "regressor", "result", "workflow", "decisions", "spo_tree")
    for name in (*(f"dflearn.tables.{part}" for part in with_sklearn), "dflearn.report.training"):
        assert made_for.pop(name) == "sklearn"
    assert all(name == f"dflearn.integrations.{extra}" for name, extra in made_for.items()), made_for


def test_importing_dflearn_imports_nothing_heavy() -> None:
    heavy = ["torch", "scipy", "numba", "highspy", "clarabel", "matplotlib", "cvxpy", "sklearn"]
    assert run(f"import sys, dflearn; print([name for name in {heavy!r} if name in sys.modules])") == "[]\n"


def test_all_extras_live_in_one_process() -> None:
    """What ships together imports together, and HiGHS still solves afterwards."""
    packages = ["highspy", "clarabel", *(package for packages in OPTIONAL.values() for package in packages)]
    solve = """
import torch, dflearn
solution = dflearn.HiGHS(dflearn.Program(A=[[1, 1]], b=[1])).solve(torch.tensor([[2.0, 3.0]])).check()
print(solution.decision.tolist(), solution.objective.tolist())
"""
    # Warnings of other people's packages are theirs. Tests import them in the usual order; this is the other one.
    code = "import importlib, warnings\nwarnings.simplefilter('ignore')\n"
    code += f"for name in {packages[::-1]!r}: importlib.import_module(name)\n"
    assert run(code + solve).splitlines()[-1] == "[[1.0, 0.0]] [2.0]"
