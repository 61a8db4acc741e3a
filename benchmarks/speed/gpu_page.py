"""The results of `gpu.py` as a document."""

from __future__ import annotations

from typing import Any

from gpu import BATCHES, PROBLEMS


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
        lines.append(f"| {row['peer']} | {row['problem']} | {row['batch']} | {told} |")
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
        "[gpu.json](gpu.json) holds all numbers, [tests.log](tests.log) the tests on that machine, with memory and race checks.",
    ]
    return "\n".join(lines) + "\n"
