"""The mutants that Cosmic Ray makes of the source files, those that rules leave out, and a draw from the rest by seed."""

import ast
import itertools
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SOURCES = Path("src/dflearn")
TYPING_DECORATORS = {"final", "override", "overload", "runtime_checkable"}
TYPE = r"(\w+\.)*[A-Z]\w*(\[.*\])?"
UNION = re.compile(rf"{TYPE}( \| {TYPE})+")
Span = tuple[tuple[int, int], tuple[int, int]]  # (line, column) of begin and end, both from 1 and 0 as in `ast`


class Mutant(NamedTuple):
    """Occurrence `occurrence` of Cosmic Ray's `operator` in `file`, at line and column."""

    file: str
    line: int
    column: int
    operator: str
    occurrence: int

    @property
    def name(self) -> str:
        place = Path(self.file).relative_to(SOURCES)
        return f"{place}:{self.line}:{self.column} {self.operator} {self.occurrence}"

    def code(self) -> str:
        """The mutated file."""
        from cosmic_ray.mutating import mutate_code
        from cosmic_ray.plugins import get_operator

        code = mutate_code(Path(self.file).read_text(), get_operator(f"core/{self.operator}")(), self.occurrence)
        assert code is not None
        return code


def sources(folders: list[str]) -> list[Path]:
    return sorted(path for folder in folders for path in (SOURCES / folder).glob("*.py"))


def all_mutants(files: list[Path]) -> Iterator[Mutant]:
    """In the order of files, operators and occurrences."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    for file in files:
        nodes = list(ast_nodes(get_ast(file.read_text())))
        for name in sorted(operator_names()):
            if get_operator(name).arguments():  # replaces variables that the user names; there are none
                continue
            operator = get_operator(name)()
            places = [begin for node in nodes for begin, _ in operator.mutation_positions(node)]
            for occurrence, (line, column) in enumerate(places):
                yield Mutant(str(file), line, column, name.removeprefix("core/"), occurrence)


def left_out(source: str) -> list[Span]:
    """What no test should see: annotations, code for type checkers alone, and the texts of messages and of `repr`."""
    lines = [line.encode() for line in source.splitlines()]

    def place(line: int, offset: int) -> tuple[int, int]:  # columns of `ast` count bytes, those of mutants characters
        return line, len(lines[line - 1][:offset].decode())

    unseen = [part for node in ast.walk(ast.parse(source)) for part in _unseen(node)]
    return [(place(p.lineno, p.col_offset), place(p.end_lineno, p.end_col_offset)) for p in unseen]


def _unseen(node: ast.AST) -> Iterator[Any]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield from (name for name in node.decorator_list if ast.unparse(name).split(".")[-1] in TYPING_DECORATORS)
        if getattr(node, "returns", None):
            yield node.returns
        if node.name in ("__repr__", "__str__"):
            yield node
    elif getattr(node, "annotation", None):
        yield node.annotation
    elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        yield node
    elif isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn"):
        for part in ast.walk(node):
            of_text = isinstance(part, ast.BinOp) and isinstance(part.left, ast.JoinedStr | ast.Constant)
            if of_text or isinstance(part, ast.JoinedStr):
                yield part
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("cast", "TypeVar"):
        yield node.args[0]
    elif isinstance(node, ast.Assign) and UNION.fullmatch(ast.unparse(node.value)):
        yield node.value


def eligible(files: list[Path]) -> list[Mutant]:
    """All mutants that no rule leaves out."""
    spans = {str(file): left_out(file.read_text()) for file in files}
    out = lambda one: any(begin <= (one.line, one.column) < end for begin, end in spans[one.file])  # noqa: E731
    return [mutant for mutant in all_mutants(files) if not out(mutant)]


def draw(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """`count` of them in random order; those that do not compile, or compile to the same program, are passed over."""
    shuffled = random.Random(seed).sample(mutants, len(mutants))
    return list(itertools.islice(filter(_differs, shuffled), count))


def _differs(mutant: Mutant) -> bool:
    try:
        return ast.dump(ast.parse(mutant.code())) != ast.dump(ast.parse(Path(mutant.file).read_text()))
    except SyntaxError:
        return False
