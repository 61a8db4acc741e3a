"""Verdicts as JSON and as a page. Equivalent mutants and those that loop are judged by hand, in `judged.json`."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from operator import itemgetter
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

Row = dict[str, Any]


def wilson(hits: int, count: int) -> tuple[float, float]:
    """The 95 % score interval of a share."""
    return tuple(binomtest(hits, count).proportion_ci(method="wilson")) if count else (0.0, 1.0)


def judgements(folder: Path) -> dict[str, dict[str, str]]:
    """{mutant: {"as": "equivalent" or "loops", "reason": …}} as a person wrote it."""
    file = folder / "judged.json"
    return json.loads(file.read_text()) if file.exists() else {}


def judged(rows: Iterable[Row], known: dict[str, dict[str, str]]) -> list[Row]:
    """Rows with a verdict of killed, survived or equivalent, and the reason where a person gave it. A time-out is killed where it
    was judged to loop, and survived otherwise. A line that no test executes is survived."""
    outcomes, result = {"equivalent": "equivalent", "loops": "killed"}, []
    for row in rows:
        own = {"as": "loops"} if row["verdict"] == "killed" else known.get(row["name"], {})
        verdict = outcomes.get(own.get("as", ""), "survived")
        result.append({**row, "outcome": row["verdict"], "verdict": verdict, "reason": own.get("reason", "")})
    return result


def table(rows: list[Row], by: Callable[[Row], str], title: str) -> str:
    """A line for each value of `by`, and one for all."""
    head = f"| {title} | mutants | killed | survived | equivalent | score | 95 % | without equivalents | 95 % |"
    lines = [head, "|---" * 9 + "|"]
    for name in [*sorted({by(row) for row in rows}), "all"]:
        some = Counter(row["verdict"] for row in rows if name in ("all", by(row)))
        shares = ""
        for count in (some.total(), some.total() - some["equivalent"]):
            low, high = wilson(some["killed"], count)
            score = f"{some['killed'] / count:.1%}" if count else "–"
            shares += f" {score} | {low:.1%} … {high:.1%} |"
        counts = f"{some.total()} | {some['killed']} | {some['survived']} | {some['equivalent']}"
        lines.append(f"| {name} | {counts} |{shares}")
    return "\n".join(lines)


def write(folder: Path, rows: list[Row], head: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = judged(rows, judgements(folder))
    whole = json.dumps({**head, "mutants_drawn": rows}, indent=1, ensure_ascii=False)
    (folder / "mutants.json").write_text(f"{whole}\n")
    (folder / "README.md").write_text(page(rows, head))
    print(table(rows, lambda row: row["file"].split("/")[2], "folder"))


def page(rows: list[Row], head: dict[str, Any]) -> str:
    rows = sorted(rows, key=itemgetter("file", "line", "column", "operator"))

    def listed(verdict: str) -> str:
        own = [(row, ": " if row["reason"] else "") for row in rows if row["verdict"] == verdict]
        lines = [f"- `{r['name']}`: `{r['change'][0]}` → `{r['change'][1]}`{end}{r['reason']}" for r, end in own]
        return "\n".join(lines) or "None."

    looping = sum(row["outcome"] == "timeout" and row["verdict"] == "killed" for row in rows)
    control = "All tests that killed a mutant pass without one, in one process."
    if head["failing_without_mutant"]:
        control = f"**`{head['failing_without_mutant']}` fails without any mutant: verdicts are void.**"
    return f"""# Do the tests notice? Mutation testing

Made by `make mutate`. {len(rows)} mutants were drawn with seed {head["seed"]} from the {head["mutants"]["eligible"]} that rules leave of the
{head["mutants"]["all"]} that Cosmic Ray {head["versions"]["cosmic-ray"]} makes (all its operators without arguments) of the folders
{", ".join(f"`{name}/`" for name in head["folders"])}, sources as of commit `{head["commit"][:7]}`. `mutants.json` holds every one: place, operator,
change, verdict and the test that killed it. Intervals are Wilson's.

Left out beforehand, because no test should see it: annotations, type aliases, decorators and code for type checkers alone; texts of
messages (formatted strings of `raise` and `warnings.warn`) and of `repr` and `str`; mutants that do not compile, and those that
compile to the same program.

A mutant meets the tests that execute its statement ({head["tests"]} tests were measured), the fastest first, for at most
{head["most_seconds_of_tests"]:.0f} seconds by what they take unmutated. What an import executes meets the tests of whatever uses it. A line that no test
executes, or a time-out that was not judged to loop, counts as survived; {looping} time-outs were judged to loop. What a person
judged (`judged.json`) is not tried again.
{control}
{head["note"]}

{table(rows, lambda row: row["file"].split("/")[2], "folder")}

{table(rows, lambda row: row["operator"].split("_")[0], "operator")}

## Equivalent mutants

{listed("equivalent")}

## Survivors

{listed("survived")}
"""
