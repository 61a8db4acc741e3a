"""Davis-Yin iterations on tiles: all iterations in one call, one triangular solve each way per iteration.

With M w̃ = r the scaled, ordered rows of the equality form, M Mᵀ = L D Lᵀ, y = clip(z) and κ = 1 − α μ (1 on slacks):

    v  = (1 + κ) y − z − α c,      x  = (M Mᵀ)⁻¹ (M v − r),      z⁺ = κ y − α c − Mᵀ x

which is z⁺ = z − y + P₁(v), P₁ being the projection onto the rows. With a quadratic objective, α c becomes α (c + Q y), Q =
RᵀR + diag(δ); without one, `curvature` is `None`, and none of that is compiled. Tiles are `wide_tile`s in the dtype of the costs; one
tile, `space`, is all the work space there is. Which variables lie strictly inside their bounds is all that `adjoint`
has to know: one bit per variable, instance and iteration.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dflearn.engine.certify_kernel import check_answers
from dflearn.engine.davis_yin.data import Curvature, PaddedRows, Rule, SplittingAnswer, SplittingData, SplittingSystem
from dflearn.engine.linear_algebra.lanes import (
    BLOCK,
    absolute,
    bits,
    get,
    jit,
    load,
    maximum,
    minimum,
    put,
    store,
    where,
)

CHECK_EVERY = 5  # iterations between two looks at how far z moves
CLOSER = 0.5  # where an answer was not good enough, the next look is when z moves by this much of what it moved then


@jit
def less_pairs(total: Any, rows: PaddedRows, i: Any, x: Any) -> Any:
    """total − (row i) · x, two entries at a time: short rows spend their time on the loop, not in it."""
    k, end = rows.start[i], rows.start[i + 1]
    while k < end:
        total = total - rows.value[k] * get(x, rows.column[k]) - rows.value[k + 1] * get(x, rows.column[k + 1])
        k += 2
    return total


@jit
def less_fours(total: Any, rows: PaddedRows, i: Any, x: Any) -> Any:
    """total − (row i) · x, four entries at a time, in two sums that need not wait for each other."""
    k, end = rows.start[i], rows.start[i + 1]
    while k < end:
        first = rows.value[k] * get(x, rows.column[k]) + rows.value[k + 1] * get(x, rows.column[k + 1])
        second = rows.value[k + 2] * get(x, rows.column[k + 2]) + rows.value[k + 3] * get(x, rows.column[k + 3])
        total = total - first - second
        k += 4
    return total


@jit
def multipliers(system: SplittingSystem, v: Any, r: Any, x: Any) -> None:
    """x = (M Mᵀ)⁻¹ (M v − r); r may be `None`, which is zero."""
    m = len(system.pivot)
    for i in range(m):
        total = get(v, 0) * 0.0 if r is None else 0.0 - get(r, i)
        total = less_fours(total, system.negated, i, v)
        put(x, i, less_fours(total, system.below, i, x))
    for i in range(m - 1, -1, -1):
        put(x, i, less_fours(get(x, i) * system.pivot[i], system.above, i, x))


@jit
def squares(curvature: Curvature, x: Any, image: Any) -> None:
    """image = −R x."""
    for i in range(len(curvature.factor.start) - 1):
        put(image, i, less_fours(get(x, 0) * 0.0, curvature.factor, i, x))


@jit
def quadratic_slope(curvature: Curvature, j: Any, x: Any, image: Any) -> Any:
    """(Q x)_j, with `image` as of `squares`."""
    return less_pairs(get(curvature.diagonal, j) * get(x, j), curvature.transpose, j, image)


@jit
def take_slope(curvature: Curvature, n: int, alpha: Any, y: Any, image: Any, slope: Any, v: Any) -> None:
    """slope = α Q y, taken off v; `image` is work space."""
    squares(curvature, y, image)
    for j in range(n):
        put(slope, j, alpha * quadratic_slope(curvature, j, y, image))
        put(v, j, get(v, j) - get(slope, j))


@jit
def copy_out(c: Any, mu: float, z: Any, y: Any, inside: Any, chosen: Any, index: Any, answer: SplittingAnswer) -> None:
    """The chosen lanes become rows `index` of the answer."""
    n, N = c.shape[1], answer.z.shape[1]
    for t in range(len(chosen)):
        if chosen[t]:
            answer.value[index[t]] = 0.0
    for first in range(0, N, BLOCK):
        for t in range(len(chosen)):
            if not chosen[t]:
                continue
            row = index[t]
            for j in range(first, min(first + BLOCK, N)):
                answer.z[row, j] = z[j].lane[t]
                answer.inside[row, j] = (inside[j] >> t) & 1
            value = 0.0
            for j in range(first, min(first + BLOCK, n)):
                w = y[j].lane[t]
                answer.w[row, j] = w
                value += w * (np.float64(c[row, j]) + 0.5 * mu * w)
            answer.value[row] += value


@jit
def error_of(
    rule: Rule, data: SplittingData, row: Any, z: Any, w: Any, x: Any, t: Any, answer: SplittingAnswer
) -> float:
    """The error of lane t, instance `row`, by the rule of `dflearn.engine.certify` without its allowance for rounding.

    z, w and x are tiles, x the multipliers of a step towards w. Prices of the program's rows, answer.prices, are x/α, and zero
    where a row has slack. If the rule does not hold, what may be rounding of zeros is set to zero, and the rule is asked again.
    w becomes the decision that was judged.
    """
    n, parts, prices = data.c.shape[1], np.empty((5, 1)), answer.prices[row : row + 1]
    point, price, error = np.empty((1, n)), prices[0], np.inf
    lower, upper = rule.lower[min(row, len(rule.lower) - 1)], rule.upper[min(row, len(rule.upper) - 1)]
    own, right = rule.curve[min(row, len(rule.curve) - 1)], rule.right[min(row, len(rule.right) - 1)]
    for i in range(len(rule.place)):
        k = rule.place[i] - rule.equalities
        slack = k >= 0 and z[n + k].lane[t] > 0.0
        price[rule.place[i]] = 0.0 if slack else -rule.scale[i] * x[i].lane[t] / data.alpha[row]
    for j in range(n):
        point[0, j] = min(max(w[j].lane[t], lower[j]), upper[j])
    for tidied in range(2):
        check_answers(
            *rule.rows, rule.equalities, rule.zero, data.c[row : row + 1], factor_terms(rule, point[0]), own.reshape(1, n), point, prices,
            right.reshape(1, -1), lower.reshape(1, n), upper.reshape(1, n), parts,
        )  # fmt: skip
        error = min(error, parts[3, 0])
        if error <= rule.tolerance or tidied:
            break
        largest, dearest = np.float64(data.least[row]), 0.0
        for j in range(n):
            largest = max(largest, abs(point[0, j]))
        for i in range(len(price)):
            dearest = max(dearest, abs(price[i]))
        for j in range(n):
            if abs(point[0, j]) <= rule.left * largest:
                point[0, j] = min(max(0.0, lower[j]), upper[j])
        for i in range(len(price)):
            if abs(price[i]) <= rule.left * dearest:
                price[i] = 0.0
    for j in range(n):
        w[j].lane[t] = point[0, j]
    return error


@jit
def factor_terms(rule: Rule, w: Any) -> Any:
    """As of `Certifier.factor_terms`, for w (n,): RᵀR w and the size of its terms, (2, 1, n)."""
    start, index, value = rule.factor
    if len(start) == 1:
        return np.empty((2, 0, 0))
    out = np.zeros((2, 1, len(w)))
    for i in range(len(start) - 1):
        total, size = 0.0, 0.0
        for k in range(start[i], start[i + 1]):
            total += value[k] * w[index[k]]
            size += abs(value[k] * w[index[k]])
        for k in range(start[i], start[i + 1]):
            out[0, 0, index[k]] += value[k] * total
            out[1, 0, index[k]] += abs(value[k]) * size
    return out


@jit
def iterate(
    system: SplittingSystem, data: SplittingData, lower: Any, upper: Any, mu: float, limit: int, rule: Rule | None, index: Any,
    used: int, space: Any, record: bool, inside: Any, answer: SplittingAnswer, curvature: Curvature | None = None,
) -> None:  # fmt: skip
    """Instances `index` of the batch: `limit` iterations, or fewer for those that the rule calls optimal at its tolerance.

    The rule is asked where z moves by no more than the tolerance, beside the size of the decisions. Without a rule, the residual
    is how far z moved last.

    An instance that is done is copied out and iterates on unseen, so that its answer does not depend on its neighbours.
    lower, upper: numbers (N,) that all instances share, or tiles of this one's own. inside: unsigned integers of one bit
    per lane, (limit, N) with `record`, then row k − 1 is about the k-th z; (1, N) otherwise, about the last one of each lane.
    """
    n, N, m = data.c.shape[1], answer.z.shape[1], len(system.pivot)
    z, v, cost, y_last = space[:N], space[N : 2 * N], space[2 * N : 3 * N], space[3 * N : 4 * N]
    x, r, scratch = space[4 * N : 4 * N + m], space[4 * N + m : 4 * N + 2 * m], space[4 * N + 2 * m :]
    slope, image = space[4 * N + 2 * m + 2 :], space[5 * N + 2 * m + 2 :]  # α Q y and −R y, with a curvature
    load(data.start, index, z.lane)
    load(data.r, index, r.lane)
    load(data.c, index, cost.lane)
    for t in range(len(index)):
        scratch[0].lane[t], scratch[1].lane[t] = data.alpha[index[t]], data.least[index[t]]
    alpha, least = get(scratch, 0), get(scratch, 1)
    smoothed, plain = 1.0 - alpha * mu, alpha * 0.0 + 1.0
    for j in range(N):
        if j < n:
            put(cost, j, alpha * get(cost, j))
        else:
            put(cost, j, 0.0)
        point, keep = get(z, j), smoothed if j < n else plain
        y = minimum(maximum(point, get(lower, j)), get(upper, j))
        put(v, j, y + keep * y - point - get(cost, j))
        if curvature is not None:
            put(y_last, j, y)
    if curvature is not None:
        take_slope(curvature, n, alpha, y_last, image, slope, v)
    gone = np.uint64(0)  # bits of the instances that are done
    done, leaving, goal = np.zeros(used, np.bool_), np.zeros(used, np.bool_), np.zeros(used)
    if rule is not None:
        goal[:] = rule.tolerance
    for k in range(1, limit + 1):
        look = k == limit or (rule is not None and k % CHECK_EVERY == 0)
        place = k - 1 if record else 0
        gap, size, total = plain * 0.0, least, plain * 0.0
        multipliers(system, v, r, x)
        for j in range(N):
            low, high, charge, keep = get(lower, j), get(upper, j), get(cost, j), smoothed if j < n else plain
            before = get(z, j)
            y = minimum(maximum(before, low), high)
            if curvature is not None:  # noqa: SIM102  (answered where this is compiled)
                if j < n:
                    charge = charge + get(slope, j)
            point = less_pairs(keep * y - charge, system.columns, j, x)
            put(z, j, point)
            if record or look:
                fresh = bits((point > low) & (point < high))
                inside[place, j] = fresh if record else (inside[place, j] & gone) | (fresh & ~gone)
            if look:
                gap = maximum(gap, absolute(point - before))
                size = maximum(size, absolute(y))
                total = total + point
            y = minimum(maximum(point, low), high)
            if curvature is None:
                put(v, j, y + keep * y - point - charge)
                if look:
                    put(y_last, j, y)
            else:
                put(v, j, y + keep * y - point - get(cost, j))
                put(y_last, j, y)
        if curvature is not None:
            take_slope(curvature, n, alpha, y_last, image, slope, v)
        if look:
            put(scratch, 0, gap / size + total * 0.0)  # a sum that is no number makes this one
            for t in range(used):
                moved, row = np.float64(scratch[0].lane[t]), index[t]
                leaving[t] = not done[t] and k == limit
                if done[t] or not (leaving[t] or moved <= goal[t]):
                    continue
                residual = moved
                if rule is not None:
                    residual = error_of(rule, data, row, z, y_last, x, t, answer)
                    leaving[t] |= residual <= rule.tolerance
                    goal[t] = CLOSER * moved
                if leaving[t]:
                    done[t] = True
                    gone |= np.uint64(1) << np.uint64(t)
                    answer.residual[row], answer.iterations[row], answer.moved[row] = residual + 0.0 * moved, k, moved
            if leaving.any():
                copy_out(data.c, mu, z, y_last, inside[place], leaving, index, answer)
            if done.all():
                break


@jit
def adjoint(
    system: SplittingSystem, alpha: Any, mu: float, inside: Any, iterations: Any, gradient: Any, index: Any, used: int,
    space: Any, out: Any, curvature: Curvature | None = None,
) -> None:  # fmt: skip
    """The derivative through so many iterations: out (count, n) = (dw/dc)ᵀ gradient for the instances `index`.

    With P the projector onto the null space of M and g the derivative with respect to z⁺, one iteration back is
    p = P g;  c gets −α p;  z gets κ p − α Q p where it lies inside its bounds and g − p elsewhere. Through the last iteration alone,
    that is the Jacobian-free gradient −α P D (gradient, 0), D keeping what lies inside.
    """
    n, N, m = gradient.shape[1], inside.shape[1], len(system.pivot)
    g, charge, x, scratch = space[:N], space[N : N + n], space[2 * N : 2 * N + m], space[2 * N + m :]
    moved, image = space[3 * N + 2 * m + 2 :], space[4 * N + 2 * m + 2 :]  # p and −R p, with a curvature
    for t in range(len(index)):
        scratch[0].lane[t] = alpha[index[t]]
    step = get(scratch, 0)
    smoothed, plain = 1.0 - step * mu, step * 0.0 + 1.0
    for j in range(N):
        put(g, j, 0.0)
    for j in range(n):
        put(charge, j, 0.0)
    last = 0
    for t in range(used):
        last = max(last, iterations[index[t]])
    for k in range(last, 0, -1):
        for first in range(0, n, BLOCK):
            for t in range(used):
                row = index[t]
                if iterations[row] == k:  # from here on the instance takes part
                    for j in range(first, min(first + BLOCK, n)):
                        if (inside[k - 1, j] >> t) & 1:
                            g[j].lane[t] = gradient[row, j]
        multipliers(system, g, None, x)
        for j in range(N):
            whole = get(g, j)
            p = less_pairs(whole, system.columns, j, x)
            if j < n:
                put(charge, j, get(charge, j) - step * p)
            if k > 1:
                put(g, j, where(inside[k - 2, j], (smoothed if j < n else plain) * p, whole - p))
            if curvature is not None:
                put(moved, j, p)
        if curvature is not None:
            squares(curvature, moved, image)
            if k > 1:
                for j in range(n):
                    turn = step * quadratic_slope(curvature, j, moved, image)
                    put(g, j, get(g, j) - where(inside[k - 2, j], turn, step * 0.0))
    store(charge.lane, index, used, out)
