"""The results of `gpu.py` as a document, and the crossover as a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ASKED = {
    "SP-25": {32: 2.5, 256: 4, 800: 8, 4096: 32},
    "KP-500": {32: 0.4, 256: 0.5, 800: 1, 4096: 3},
    "CFL-250": {32: 1.2, 256: 3, 800: 6, 4096: 26},
    "SP-50": {32: 15, 256: 30, 800: 80, 4096: 400},
    "SP-100": {32: 150},
}
EXACT = 1e-6  # of decisions, beside the largest
Rows = list[dict[str, Any]]


def page(found: dict[str, Any]) -> str:
    """The results as a document."""
    versions = ", ".join(f"{name} {value}" for name, value in found["versions"].items())
    parts = [
        "# `Smoothed` on a GPU",
        f"Measured in one run by `python benchmarks/speed/gpu.py`, which says how: {versions}.",
        *_layer(found),
        *_peers(found),
        *_training(found),
        *_splitting(found),
        *_small(found),
        "[gpu.json](gpu.json) holds all numbers, [tests.log](tests.log) the tests on that machine, with memory and race checks.",
    ]
    failed = dict(found.get("failed", {}))
    if found["cores"].get("failed"):
        failed["cores"] = found["cores"]["failed"]
    parts += [f"Part {name} was not finished: {why}." for name, why in failed.items()]
    return "\n\n".join(parts) + "\n"


def table(head: str, rows: list[list[str]]) -> str:
    """Names of columns, those of numbers after a colon; and lines."""
    names = head.split(" | ")
    rule = "|" + "".join("---:|" if name.startswith(":") else "---|" for name in names)
    lines = ["| " + " | ".join(name.removeprefix(":") for name in names) + " |", rule]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def by_key(rows: Rows, *names: str) -> dict[Any, dict[str, Any]]:
    return {tuple(row[name] for name in names): row for row in rows}


def three(number: float | None) -> str:
    return "–" if number is None else f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def power(number: float) -> str:
    return f"{number:.0e}"


def _layer(found: dict[str, Any]) -> list[str]:
    cpu, lines = by_key(found["cores"].get("layer", []), "problem", "batch"), []
    for row in found["layer"]:
        other = cpu.get((row["problem"], row["batch"]), {}).get("ms")
        lines.append(
            [
                row["problem"], str(row["batch"]), three(row["ms"]), three(row["captured_ms"]),
                str(ASKED[row["problem"]].get(row["batch"], "–")), three(row["warm_ms"]), three(other),
                "–" if other is None else f"{other / row['ms']:.1f}", power(row["decision_error"]), power(row["gradient_error"]),
                f"{row['peak_mib']:.0f}",
            ]
        )  # fmt: skip
    where = {row["problem"]: row["where"] for row in found["layer"]}
    return [
        "Forward and backward of a batch through the layer, float64, ms: on the GPU, called from Python; the same, captured as a CUDA "
        "graph; the target that was set beforehand; from multipliers of costs that differ by 2 % (warm); on all cores of the same machine's CPU "
        f"({found['cores'].get('threads', '?')} threads, in a process of its own); and the ratio of the latter to the first.",
        table(
            "problem | :batch | :GPU | :captured | :asked | :warm | :CPU | :ratio | :decisions off by | :gradients off by | :peak MiB",
            lines,
        ),
        "Where: " + "; ".join(f"{name}: {text}" for name, text in where.items()) + ".",
    ]


def _peers(found: dict[str, Any]) -> list[str]:
    layer, lines = by_key(found["layer"], "problem", "batch"), []
    for row in sorted(found["peers"], key=lambda row: (row["problem"], row["batch"])):
        ours = layer[row["problem"], row["batch"]]
        tolerance = "default" if row["tolerance"] is None else power(row["tolerance"])
        told = (
            [
                three(row["ms"]), three(ours["ms"]), f"{row['ms'] / ours['ms']:.0f}", power(row["decision_error"]),
                power(row["row_error"]), power(row["objective_error"]), power(ours["decision_error"]),
            ]
            if "decision_error" in row
            else [row["failed"].replace("|", "/")[:160], three(ours["ms"]), "", "", "", "", power(ours["decision_error"])]
        )  # fmt: skip
        lines.append([row["problem"], str(row["batch"]), row["peer"], tolerance, *told])
    return [
        "Peers on the same instances, ms without compilation, at a tolerance of 1e-6 and at their default; how far their decisions are from "
        "ours, how far they break rows and bounds, and their objectives, and how far our decisions are from the CPU's. MPAX is forward only, all others "
        "with gradient. *dense*: an interior-point method in torch with one batched dense Cholesky factor a step, ours, as a yardstick, to decisions exact to 1e-6.",
        table(
            "problem | :batch | peer | tolerance | :ms | :ours | :ratio | :decisions off by | :rows off by | :objectives off by | :ours off by",
            lines,
        ),
        "CuClarabel (Julia) and Moreau's CUDA build (NVIDIA's cuDSS) could not be had on that machine, which has no network.",
    ]


def _training(found: dict[str, Any]) -> list[str]:
    rows = [*found["training"], *found["cores"].get("training", [])]
    epochs = [
        [
            row["device"],
            "yes" if row["warm_start"] else "no",
            f"{row['epoch_ms']:.0f}",
            f"{row['first_epoch_ms']:.0f}",
        ]
        for row in rows
    ]
    images = [
        [
            str(row["parameters"]),
            three(row["step_ms"]),
            three(row["step_without_layer_ms"]),
            f"{row['share']:.0%}",
            three(row["layer_ms"]),
        ]
        for row in found["images"]
    ]
    return [
        table("an epoch of SCE, SP-25, 800 instances, batch 32 | warm starts | :ms | :first epoch", epochs),
        "A step of a small convolutional net that predicts SP-25 from images, batch 32 (SCE, Adam, float32), ms:",
        table(":parameters | :step | :without the layer | :share of the layer | :the layer alone", images),
    ]


def _splitting(found: dict[str, Any]) -> list[str]:
    cpu = by_key(found["cores"].get("davis_yin", []), "problem", "batch", "dtype")
    lines = [
        [
            row["problem"], str(row["batch"]), row["dtype"], three(row["ms"]), three(row["captured_ms"]),
            three(cpu.get((row["problem"], row["batch"], row["dtype"]), {}).get("ms")), power(row["decision_error"]), row["way"],
        ]
        for row in found["davis_yin"]
    ]  # fmt: skip
    return [
        "`DavisYin`, a hundred iterations forward, and back by jfb, ms: called from Python, captured, on all cores of the CPU:",
        table("problem | :batch | dtype | :GPU | :captured | :CPU | :decisions off by | by", lines),
    ]


def _small(found: dict[str, Any]) -> list[str]:
    cpu = by_key(found["cores"].get("crossover", []), "problem", "batch")
    sizes = list(dict.fromkeys(row["batch"] for row in found["crossover"]))
    own = by_key(found["crossover"], "problem", "batch")
    lines = []
    for name in dict.fromkeys(row["problem"] for row in found["crossover"]):
        cells = [name]
        for size in sizes:
            beside = cpu.get((name, size), {})
            times = (own[name, size]["ms"], beside.get("one_core_ms"), beside.get("all_cores_ms"))
            cells.append(", ".join("–" if ms is None else f"{ms:.2g}" if ms < 100 else f"{ms:.0f}" for ms in times))
        lines.append(cells)
    return [
        "Small batches, forward and back, ms: the GPU, one core, all cores of that machine ([figure](../../docs/images/gpu-crossover.svg)):",
        table(" | ".join(["problem", *map(str, sizes)]), lines),
    ]


# -- what docs/gpu.md says of it -----------------------------------------------------------------------------------------

BEGIN, END = "<!-- measured: benchmarks/speed/gpu.py writes this part -->", "<!-- end of the measured part -->"


def documented(text: str, found: dict[str, Any]) -> str:
    """A document with its measured part made anew."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + "\n\n" + measured(found) + "\n\n" + END + rest.split(END)[1]


def measured(found: dict[str, Any]) -> str:
    """The times as a small table, and what follows from them."""
    layer, cores = by_key(found["layer"], "problem", "batch"), found["cores"]
    cpu = by_key(cores.get("layer", []), "problem", "batch")
    sizes = list(dict.fromkeys(row["batch"] for row in found["layer"]))
    lines = []
    for name in dict.fromkeys(row["problem"] for row in found["layer"]):
        cells = [name]
        for size in sizes:
            row = layer.get((name, size))
            other = cpu.get((name, size), {}).get("ms")
            cells.append("" if row is None else ", ".join(map(three, (row["ms"], row["captured_ms"], other))))
        lines.append(cells)
    heads = [f"{size} instances" if k == 0 else str(size) for k, size in enumerate(sizes)]
    facts = [
        *_against_the_cpu(layer, cpu, sizes), *_few(found), *_epochs(found), *_answers(found), *_iterations(found), *_contenders(found),
    ]  # fmt: skip
    return "\n\n".join(
        [table(" | ".join(["GPU, captured, CPU", *heads]), lines), "\n".join(f"- {fact}" for fact in facts)]
    )


def between(numbers: list[float], form: str = ".0f") -> str:
    """The smallest to the largest."""
    low, high = (f"{end(numbers):{form}}" for end in (min, max))
    return low if low == high else f"{low} to {high}"


def _against_the_cpu(layer: dict[Any, Any], cpu: dict[Any, Any], sizes: list[int]) -> list[str]:
    told = []
    for size in sizes:
        ratios = [cpu[key]["ms"] / row["ms"] for key, row in layer.items() if key[1] == size and key in cpu]
        if ratios:
            told.append(f"{between(ratios)} times at {size} instances")
    return [f"**Against all cores**, the GPU is faster: {', '.join(told)}."] if told else []


def _few(found: dict[str, Any]) -> list[str]:
    one = by_key(found["cores"].get("crossover", []), "problem", "batch")
    ratios = {
        size: [
            one[row["problem"], size]["one_core_ms"] / row["ms"]
            for row in found["crossover"]
            if row["batch"] == size and (row["problem"], size) in one
        ]
        for size in (1, 32)
    }
    if not all(ratios.values()):
        return []
    return [
        f"**For a few instances** it hardly pays: beside one core, it is {between(ratios[1], '.1f')} times as fast at one instance, and "
        f"{between(ratios[32])} times at 32. One instance takes nearly as long as 64 of them, since each has a block of its own."
    ]


def _epochs(found: dict[str, Any]) -> list[str]:
    rows = by_key([*found["training"], *found["cores"].get("training", [])], "device", "warm_start")
    told = []
    if ("cuda", False) in rows and ("cpu", False) in rows:
        times = {key: f"{row['epoch_ms']:.0f}" for key, row in rows.items()}
        told.append(
            f"**An epoch** of SCE on SP-25 (800 instances, batch 32) takes {times['cuda', False]} ms there and {times['cpu', False]} ms on all "
            f"cores; with warm starts {times['cuda', True]} and {times['cpu', True]} ms."
        )
    for row in found["images"]:
        told.append(
            "**Images**: in a training step of a small convolutional net that predicts SP-25 from images of 100 × 100 (batch 32, "
            f"{three(row['step_ms'])} ms), the layer is {row['share']:.0%}."
        )
    return told


def _answers(found: dict[str, Any]) -> list[str]:
    worst = {name: max(row[name] for row in found["layer"]) for name in ("decision_error", "gradient_error")}
    return [
        f"**Answers**: decisions are those of the CPU to {power(worst['decision_error'])} of the largest, gradients to "
        f"{power(worst['gradient_error'])}; from nothing, the steps are the same in number."
    ]


def _iterations(found: dict[str, Any]) -> list[str]:
    cpu = by_key(found["cores"].get("davis_yin", []), "problem", "batch", "dtype")
    told = [
        f"{three(row['ms'])} ms for {row['batch']} instances of {row['problem']} "
        f"({three(cpu.get((row['problem'], row['batch'], row['dtype']), {}).get('ms'))} on the cores)"
        for row in found["davis_yin"]
        if row["dtype"] == "float32" and row["problem"] in ("KP-500", "SP-25")
    ]
    return [f"**`DavisYin`**, a hundred iterations forward and back in float32: {', '.join(told)}."] if told else []


def _contenders(found: dict[str, Any]) -> list[str]:
    named = [row for row in found["peers"] if row["tolerance"] is not None and "decision_error" in row]
    exact = [row for row in named if row["decision_error"] <= EXACT]
    return [
        f"**The fastest peer** {which}: {_fastest(found, rows)}."
        for which, rows in (("at a tolerance of 1e-6", named), ("whose decisions are exact to 1e-6", exact))
        if rows
    ]


def _fastest(found: dict[str, Any], rows: Rows) -> str:
    layer, told = by_key(found["layer"], "problem", "batch"), []
    for key in dict.fromkeys((row["problem"], row["batch"]) for row in rows):
        best = min((row for row in rows if (row["problem"], row["batch"]) == key), key=lambda row: row["ms"])
        told.append(
            f"{best['peer']} {three(best['ms'])} ms on {key[0]} × {key[1]} ({best['ms'] / layer[key]['ms']:.0f} times ours, "
            f"decisions off by {power(best['decision_error'])})"
        )
    return "; ".join(told)


def figure(found: dict[str, Any], path: Path) -> None:
    """Milliseconds against the batch: GPU, one core, all cores; a panel for each problem."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "dflearn"
    names = list(dict.fromkeys(row["problem"] for row in found["crossover"]))
    lines = (
        (found["crossover"], "ms", "GPU", "#0b66c3"),
        (found["cores"].get("crossover", []), "one_core_ms", "one core", "#7f7f7f"),
        (found["cores"].get("crossover", []), "all_cores_ms", f"{found['cores'].get('threads')} cores", "#c38a0b"),
    )
    whole = Figure(figsize=(3 * len(names), 3), layout="constrained")
    for k, name in enumerate(names):
        axes = whole.add_subplot(1, len(names), k + 1)
        sizes = [row["batch"] for row in found["crossover"] if row["problem"] == name]
        for rows, key, label, color in lines:
            own = [row for row in rows if row["problem"] == name]
            axes.plot(
                [row["batch"] for row in own], [row[key] for row in own], "o-", label=label, color=color, markersize=3
            )
        axes.set(xscale="log", yscale="log", title=name, xlabel="instances", xticks=sizes, xticklabels=sizes)
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        if k == 0:
            axes.set_ylabel("ms, forward and back")
            axes.legend(frameon=False)
    whole.savefig(path, metadata={"Date": None})
