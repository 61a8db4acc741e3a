"""The mutants that Cosmic Ray makes of the source files, those that rules leave out, and a draw from the rest by seed."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCES = Path("src/dflearn")
TYPING_DECORATORS = {"final", "override", "overload", "runtime_checkable"}
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
    lines, spans = source.splitlines(), []

    def add(node: ast.AST) -> None:
        # Columns of `ast` count bytes, those of mutants characters.
        def column(line: int, offset: int) -> int:
            return len(lines[line - 1].encode()[:offset].decode())

        begin = (node.lineno, column(node.lineno, node.col_offset))
        spans.append((begin, (node.end_lineno, column(node.end_lineno, node.end_col_offset))))

    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign) or (isinstance(node, ast.arg) and node.annotation):
            add(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            if node.returns:
                add(node.returns)
            for decorator in node.decorator_list:
                if ast.unparse(decorator).split(".")[-1] in TYPING_DECORATORS:
                    add(decorator)
            if node.name in ("__repr__", "__str__"):
                add(node)
        elif isinstance(node, ast.ClassDef):
            for decorator in node.decorator_list:
                if ast.unparse(decorator).split(".")[-1] in TYPING_DECORATORS:
                    add(decorator)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            add(node)
        elif isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn"):
            for part in ast.walk(node):
                if isinstance(part, ast.JoinedStr) or (
                    isinstance(part, ast.BinOp) and isinstance(part.left, ast.JoinedStr | ast.Constant)
                ):
                    add(part)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("cast", "TypeVar"):
            add(node.args[0])
        elif isinstance(node, ast.Assign) and _is_alias(node.value):
            add(node.value)
    return spans


def _is_alias(value: ast.expr) -> bool:
    """Whether an assigned value is a union of types, such as `Part = Solver | Program | None`."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr):
        return all(_is_alias(side) or _is_type(side) for side in (value.left, value.right))
    return False


def _is_type(value: ast.expr) -> bool:
    if isinstance(value, ast.Subscript):
        return _is_type(value.value)
    return isinstance(value, ast.Name | ast.Attribute) and ast.unparse(value).split(".")[-1][:1].isupper()


def eligible(files: list[Path]) -> list[Mutant]:
    """All mutants that no rule leaves out."""
    spans = {str(file): left_out(file.read_text()) for file in files}
    return [
        mutant
        for mutant in all_mutants(files)
        if not any(begin <= (mutant.line, mutant.column) < end for begin, end in spans[mutant.file])
    ]


def draw(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """`count` of them in random order; those that do not compile, or compile to the same program, are passed over."""
    shuffled = random.Random(seed).sample(mutants, len(mutants))
    drawn: list[Mutant] = []
    for mutant in shuffled:
        if len(drawn) == count:
            break
        if _differs(mutant):
            drawn.append(mutant)
    return drawn


def _differs(mutant: Mutant) -> bool:
    try:
        return ast.dump(ast.parse(mutant.code())) != ast.dump(ast.parse(Path(mutant.file).read_text()))
    except SyntaxError:
        return False
