"""The results of `gpu.py` as a document, and the crossover as a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpu import BATCHES, PROBLEMS, SMALL


def page(found: dict[str, Any]) -> str:
    """The results as a document."""
    asked = {
        "SP-25": (2.5, 4, 8, 32),
        "KP-500": (0.4, 0.5, 1, 3),
        "CFL-250": (1.2, 3, 6, 26),
        "SP-50": (15, 30, 80, 400),
        "SP-100": (150,),
    }
    layer = {(row["problem"], row["batch"]): row for row in found["layer"]}
    cpu = {(row["problem"], row["batch"]): row["cpu_ms"] for row in found["cpu"]}
    replayed = {(row["problem"], row["batch"]): f"{row['ms']:.3g}" for row in found.get("captured", [])}
    versions = ", ".join(f"{name} {value}" for name, value in found["versions"].items())
    lines = [
        "# `Smoothed` on a GPU",
        "",
        f"Measured by `python benchmarks/speed/gpu.py`, which says how: {versions}.",
        "",
        "Forward and backward of a batch through the layer, float64, ms: on the GPU, called from Python; the same, captured as a CUDA graph; from multipliers of costs that differ by 2 % (warm), on all",
        "cores of the same machine's CPU, and the ratio of the latter to the first. Asked: the target that was set beforehand.",
        "",
        "| problem | batch | GPU | captured | asked | warm | CPU | ratio | decisions off by | gradients off by | peak MiB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (name, batch), row in layer.items():
        other = cpu.get((name, batch))
        wanted = asked[name][BATCHES.index(batch)]
        beside = ("–", "–") if other is None else (f"{other:.3g}", f"{other / row['ms']:.1f}")
        lines.append(
            f"| {name} | {batch} | {row['ms']:.3g} | {replayed.get((name, batch), '–')} | {wanted} | {row['warm_ms']:.3g} | {beside[0]} | {beside[1]} | "
            f"{row['decision_error']:.0e} | {row['gradient_error']:.0e} | {row['peak_mib']:.0f} |"
        )
    if "note" in found:
        lines += ["", found["note"]]
    lines += ["", "Where: " + "; ".join(f"{name}: {layer[name, 32]['where']}" for name in PROBLEMS) + ".", ""]
    lines += ["| peer | problem | batch | ms | ours | ratio | decisions off by |", "|---|---|---:|---:|---:|---:|---:|"]
    for row in found["peers"]:
        ours = layer[row["problem"], row["batch"]]["ms"]
        told = (
            f"{row['ms']:.0f} | {ours:.3g} | {row['ms'] / ours:.0f} | {row['decision_error']:.0e}"
            if "ms" in row
            else f"{row['failed'].splitlines()[-1][:120]} | {ours:.3g} | | "
        )
        lines.append(
            f"| {row['peer']}{'*' if row.get('earlier') else ''} | {row['problem']} | {row['batch']} | {told} |"
        )
    lines += [
        "",
        "MPAX is forward only; its default is 1e-4. *dense*: an interior-point method in torch with one batched dense Cholesky factor a step, ours, as a yardstick. CuClarabel (Julia) and Moreau's CUDA build (NVIDIA's cuDSS) could not be had on that machine, which has no network.",
    ]
    lines += [
        "",
        "| an epoch of SCE, SP-25, 800 instances, batch 32 | warm starts | ms | first epoch |",
        "|---|---|---:|---:|",
    ]
    for row in found["training"]:
        lines.append(
            f"| {row['device']} | {'yes' if row['warm_start'] else 'no'} | {row['epoch_ms']:.0f} | {row['first_epoch_ms']:.0f} |"
        )
    lines += [
        "",
        "A step of a small convolutional net that predicts SP-25 from images, batch 32 (SCE, Adam, float32), ms:",
        "",
        "| parameters | step | without the layer | share of the layer | the layer alone |",
        "|---:|---:|---:|---:|---:|",
    ]
    for row in found["images"]:
        lines.append(
            f"| {row['parameters']} | {row['step_ms']:.3g} | {row['step_without_layer_ms']:.3g} | {row['share']:.0%} | {row['layer_ms']:.3g} |"
        )
    lines += [
        "",
        "`DavisYin`, a hundred iterations forward, and back by jfb, ms (and on the CPU's cores, where it was measured):",
        "",
        "| problem | batch | float32 | float64 |",
        "|---|---:|---:|---:|",
    ]
    splitting = {(row["problem"], row["batch"], row["dtype"]): row for row in found["davis_yin"]}
    for name, batch in dict.fromkeys((row["problem"], row["batch"]) for row in found["davis_yin"]):
        rows = (splitting.get((name, batch, dtype), {}) for dtype in ("float32", "float64"))
        told = [
            f"{row['ms']:.3g}" + (f" ({row['cpu_ms']:.3g})" if "cpu_ms" in row else "") if row else "–" for row in rows
        ]
        lines.append(f"| {name} | {batch} | {' | '.join(told)} |")
    lines += [
        "",
        "Small batches, forward and back, ms: the GPU, one core of that machine ([figure](../../docs/images/gpu-crossover.svg)):",
        "",
        "| problem | " + " | ".join(map(str, SMALL)) + " |",
        "|---|" + "---|" * len(SMALL),
    ]
    small = {(row["problem"], row["batch"]): row for row in found["crossover"]}
    for name in dict.fromkeys(row["problem"] for row in found["crossover"]):
        rows = [small[name, batch] for batch in SMALL]
        parts = (f"{row['ms']:.2g}, {row['one_core_ms']:.2g}" for row in rows)
        lines.append(f"| {name} | {' | '.join(parts)} |")
    lines += [
        "",
        "[gpu.json](gpu.json) holds all numbers, [tests.log](tests.log) the tests on that machine, with memory and race checks.",
    ]
    return "\n".join(lines) + "\n"


def figure(found: dict[str, Any], path: Path) -> None:
    """Milliseconds against the batch: GPU and one core; a panel for each problem."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "dflearn"
    names = list(dict.fromkeys(row["problem"] for row in found["crossover"]))
    whole = Figure(figsize=(3 * len(names), 3), layout="constrained")
    for k, name in enumerate(names):
        axes, rows = (
            whole.add_subplot(1, len(names), k + 1),
            [row for row in found["crossover"] if row["problem"] == name],
        )
        for key, label, color in (
            ("ms", "GPU", "#0b66c3"),
            ("one_core_ms", "one core", "#7f7f7f"),
        ):
            axes.plot(
                [row["batch"] for row in rows], [row[key] for row in rows], "o-", label=label, color=color, markersize=3
            )
        axes.set(xscale="log", yscale="log", title=name, xlabel="instances", xticks=SMALL, xticklabels=SMALL)
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        if k == 0:
            axes.set_ylabel("ms, forward and back")
            axes.legend(frameon=False)
    whole.savefig(path, metadata={"Date": None})
