"""The results of `gpu.py` as a document, and the crossover as a figure."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from harness import Row, Rows

ASKED = {
    "SP-25": {32: 2.5, 256: 4, 800: 8, 4096: 32},
    "KP-500": {32: 0.4, 256: 0.5, 800: 1, 4096: 3},
    "CFL-250": {32: 1.2, 256: 3, 800: 6, 4096: 26},
    "SP-50": {32: 15, 256: 30, 800: 80, 4096: 400},
    "SP-100": {32: 150},
}
PLACE = ("problem", "batch")


def page(found: dict[str, Any]) -> str:
    """The results as a document."""
    versions = ", ".join(f"{name} {value}" for name, value in found["versions"].items())
    failed = found.get("failed", {}) | ({"cores": found["cores"]["failed"]} if found["cores"].get("failed") else {})
    parts = [
        "# `Smoothed` on a GPU",
        f"Measured in one run by `python benchmarks/speed/gpu.py`, which says how: {versions}.",
        *_layer(found),
        *(_peers(found) if found.get("peers") else []),
        *_training(found),
        *_splitting(found),
        *_small(found),
        "[gpu.json](gpu.json) holds all numbers, [tests.log](tests.log) the tests on that machine, with memory and race checks.",
        *(f"Part {name} was not finished: {why}." for name, why in failed.items()),
    ]
    return "\n\n".join(parts) + "\n"


def table(head: str, rows: Iterable[Sequence[Any]]) -> str:
    """Names of columns, those of numbers after a colon; and lines."""
    names = head.split(" | ")
    rule = "|" + "".join("---:|" if name.startswith(":") else "---|" for name in names)
    lines = ["| " + " | ".join(name.removeprefix(":") for name in names) + " |", rule]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


def by_key(rows: Rows, *names: str) -> dict[Any, Row]:
    return {tuple(row[name] for name in names): row for row in rows}


def on_cores(found: dict[str, Any], part: str, *names: str) -> dict[Any, Row]:
    """What all cores of the CPU took."""
    return by_key(found["cores"].get(part, []), *names)


def three(number: float | None) -> str:
    return "–" if number is None else f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def power(number: float) -> str:
    return f"{number:.0e}"


def _layer(found: dict[str, Any]) -> list[str]:
    cpu, lines = on_cores(found, "layer", *PLACE), []
    for place, row in by_key(found["layer"], *PLACE).items():
        other = cpu.get(place, {}).get("ms")
        asked, ratio = ASKED[place[0]].get(place[1], "–"), "–" if other is None else f"{other / row['ms']:.1f}"
        times = [three(row["ms"]), three(row["captured_ms"]), asked, three(row["warm_ms"]), three(other), ratio]
        errors = [power(row["decision_error"]), power(row["gradient_error"]), f"{row['peak_mib']:.0f}"]
        lines.append([*place, *times, *errors])
    where = {row["problem"]: row["where"] for row in found["layer"]}
    head = "problem | :batch | :GPU | :captured | :asked | :warm | :CPU | :ratio | :decisions off by"
    return [
        "Forward and backward of a batch through the layer, float64, ms: on the GPU, called from Python; the same, captured as a CUDA "
        "graph; the target that was set beforehand; from multipliers of costs that differ by 2 % (warm); on all cores of the same machine's CPU "
        f"({found['cores'].get('threads', '?')} threads, in a process of its own); and the ratio of the latter to the first.",
        table(f"{head} | :gradients off by | :peak MiB", lines),
        "Where: " + "; ".join(f"{name}: {text}" for name, text in where.items()) + ".",
    ]


def _peers(found: dict[str, Any]) -> list[str]:
    layer, lines = by_key(found["layer"], *PLACE), []
    for row in sorted(found["peers"], key=lambda row: (row["problem"], row["batch"])):
        ours = layer[row["problem"], row["batch"]]
        told = [row.get("failed", "").replace("|", "/")[:160], three(ours["ms"]), "", "", "", ""]
        if "decision_error" in row:
            told = [three(row["ms"]), three(ours["ms"]), f"{row['ms'] / ours['ms']:.0f}"]
            told += [power(row[f"{what}_error"]) for what in ("decision", "row", "objective")]
        tolerance = "default" if row["tolerance"] is None else power(row["tolerance"])
        lines.append([row["problem"], row["batch"], row["peer"], tolerance, *told, power(ours["decision_error"])])
    head = "problem | :batch | peer | tolerance | :ms | :ours | :ratio | :decisions off by | :rows off by | :objectives off by"
    return [
        "Peers on the same instances, ms without compilation, at a tolerance of 1e-6 and at their default; how far their decisions are from "
        "ours, how far they break rows and bounds, and their objectives, and how far our decisions are from the CPU's. MPAX is forward only, all others "
        "with gradient. *dense*: an interior-point method in torch with one batched dense Cholesky factor a step, ours, as a yardstick, to decisions exact to 1e-6. "
        "A finished measurement: the scripts `benchmarks/speed/gpu_peers.py` and `gpu_dense.py` were last in commit 2df5e2c.",
        table(f"{head} | :ours off by", lines),
        "CuClarabel (Julia) and Moreau's CUDA build (NVIDIA's cuDSS) could not be had on that machine, which has no network.",
    ]


def _training(found: dict[str, Any]) -> list[str]:
    epochs = []
    for row in [*found["training"], *found["cores"].get("training", [])]:
        times = [f"{row[key]:.0f}" for key in ("epoch_ms", "first_epoch_ms")]
        epochs.append([row["device"], "yes" if row["warm_start"] else "no", *times])
    parts = [table("an epoch of SCE, SP-25, 800 instances, batch 32 | warm starts | :ms | :first epoch", epochs)]
    for row in found.get("images", []):
        whole, without, alone = (three(row[f"{key}_ms"]) for key in ("step", "step_without_layer", "layer"))
        images = [[row["parameters"], whole, without, f"{row['share']:.0%}", alone]]
        parts += [
            "A step of a small convolutional net that predicts SP-25 from images, batch 32 (SCE, Adam, float32), ms. A finished measurement: "
            "`image_rows` of `benchmarks/speed/gpu.py` was last in commit 137582a.",
            table(":parameters | :step | :without the layer | :share of the layer | :the layer alone", images),
        ]
    return parts


def _splitting(found: dict[str, Any]) -> list[str]:
    cpu, lines = on_cores(found, "davis_yin", *PLACE, "dtype"), []
    for place, row in by_key(found["davis_yin"], *PLACE, "dtype").items():
        times = [three(row["ms"]), three(row["captured_ms"]), three(cpu.get(place, {}).get("ms"))]
        lines.append([*place, *times, power(row["decision_error"]), row["way"]])
    return [
        "`DavisYin`, a hundred iterations forward, and back by jfb, ms: called from Python, captured, on all cores of the CPU:",
        table("problem | :batch | dtype | :GPU | :captured | :CPU | :decisions off by | by", lines),
    ]


def _small(found: dict[str, Any]) -> list[str]:
    cpu, own = on_cores(found, "crossover", *PLACE), by_key(found["crossover"], *PLACE)

    def cell(place: tuple[str, int]) -> str:
        times = (own[place]["ms"], *(cpu.get(place, {}).get(key) for key in ("one_core_ms", "all_cores_ms")))
        return ", ".join("–" if ms is None else f"{ms:.2g}" if ms < 100 else f"{ms:.0f}" for ms in times)

    names, sizes = (list(dict.fromkeys(axis)) for axis in zip(*own, strict=True))
    return [
        "Small batches, forward and back, ms: the GPU, one core, all cores of that machine ([figure](../../docs/images/gpu-crossover.svg)):",
        table(" | ".join(["problem", *map(str, sizes)]), [[n, *(cell((n, size)) for size in sizes)] for n in names]),
    ]


BEGIN, END = "<!-- measured: benchmarks/speed/gpu.py writes this part -->", "<!-- end of the measured part -->"


def documented(text: str, found: dict[str, Any]) -> str:
    """A document with its measured part made anew: the times of the layer."""
    layer, cpu = by_key(found["layer"], *PLACE), on_cores(found, "layer", *PLACE)

    def cell(place: tuple[str, int]) -> str:
        row, other = layer.get(place), cpu.get(place, {}).get("ms")
        return "" if row is None else ", ".join(map(three, (row["ms"], row["captured_ms"], other)))

    names, sizes = (list(dict.fromkeys(axis)) for axis in zip(*layer, strict=True))
    heads = ["GPU, captured, CPU", *(f"{size} instances" if size == sizes[0] else str(size) for size in sizes)]
    measured = table(" | ".join(heads), [[name, *(cell((name, size)) for size in sizes)] for name in names])
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{measured}\n\n{END}{rest.split(END)[1]}"


def figure(found: dict[str, Any], path: Path) -> None:
    """Milliseconds against the batch: GPU, one core, all cores; a panel for each problem."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "dflearn"
    names = list(dict.fromkeys(row["problem"] for row in found["crossover"]))
    cores = found["cores"].get("crossover", [])
    lines = (
        (found["crossover"], "ms", "GPU", "#0b66c3"),
        (cores, "one_core_ms", "one core", "#7f7f7f"),
        (cores, "all_cores_ms", f"{found['cores'].get('threads')} cores", "#c38a0b"),
    )
    whole = Figure(figsize=(3 * len(names), 3), layout="constrained")
    for name, axes in zip(names, whole.subplots(1, len(names), squeeze=False)[0], strict=True):
        sizes = [row["batch"] for row in found["crossover"] if row["problem"] == name]
        for rows, key, label, color in lines:
            x, y = zip(*((row["batch"], row[key]) for row in rows if row["problem"] == name), strict=True)
            axes.plot(x, y, "o-", label=label, color=color, markersize=3)
        axes.set(xscale="log", yscale="log", title=name, xlabel="instances", xticks=sizes, xticklabels=sizes)
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        if name == names[0]:
            axes.set_ylabel("ms, forward and back")
            axes.legend(frameon=False)
    whole.savefig(path, metadata={"Date": None})
