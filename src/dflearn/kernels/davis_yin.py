"""Davis-Yin iterations on tiles: all iterations in one call, one triangular solve each way per iteration.

With M w̃ = r the scaled, ordered rows of the equality form, M Mᵀ = L D Lᵀ, y = clip(z) and κ = 1 − α μ (1 on slacks):

    v  = (1 + κ) y − z − α c,      x  = (M Mᵀ)⁻¹ (M v − r),      z⁺ = κ y − α c − Mᵀ x

which is z⁺ = z − y + P₁(v), P₁ being the projection onto the rows. With a quadratic objective, α c becomes α (c + Q y), Q =
RᵀR + diag(δ); without one, `curvature` is `None`, and none of that is compiled. Tiles are `wide_tile`s in the dtype of the costs; one
tile, `space`, is all the work space there is. Which variables lie strictly inside their bounds is all that the way back
has to know: one bit per variable, instance and iteration.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dflearn.kernels.lanes import (
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
from dflearn.kernels.optimality import FAR_PRICE, SILENT
from dflearn.kernels.splitting_data import Curvature, PaddedRows, SplittingAnswer, SplittingData, SplittingSystem

CHECK_EVERY = 5  # iterations between two looks at the residual
MOST_ROUNDING = 1.2e-7  # beside the largest decision: in float32 too, an error of 1e-5 is none


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
def bend(curvature: Curvature, j: Any, x: Any, image: Any) -> Any:
    """(Q x)_j, with `image` as of `squares`."""
    return less_pairs(get(curvature.diagonal, j) * get(x, j), curvature.transpose, j, image)


@jit
def bend_size(curvature: Curvature, j: Any, x: Any, image: Any) -> Any:
    """(|R|ᵀ|R x| + δ |x|)_j: the size of the terms that (Q x)_j is summed from."""
    total, rows = get(curvature.diagonal, j) * absolute(get(x, j)), curvature.transpose
    for k in range(rows.start[j], rows.start[j + 1]):
        total = total + absolute(rows.value[k] * get(image, rows.column[k]))
    return total


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
def relative_residual(
    system: SplittingSystem,
    cost: Any,
    alpha: Any,
    mu: float,
    r: Any,
    lower: Any,
    upper: Any,
    w: Any,
    x: Any,
    least: Any,
    rounding: float,
    n: int,
    snap: bool,
    terms: Any,
    curvature: Curvature | None,
    image: Any,
) -> Any:
    """The relative KKT residual of w and the prices x/α, row by row and variable by variable: see `kernels.optimality`.

    cost: α c. image: −R w, with a curvature. x: the multipliers of a step towards w; what presses an inequality the wrong way
    is cut off. With `snap`, what rounding leaves of zeros in w becomes zero. terms (n or more) is scratch.
    """
    m, none = len(system.pivot), alpha * 0.0
    prices, felt = none, none
    one, worst, largest, costs, value, loss = none + 1.0, none, least, none, none, none
    for i in range(m):
        if system.inequality[i]:
            put(x, i, maximum(get(x, i), 0.0))
        prices = maximum(prices, absolute(get(x, i)))
    for j in range(n):
        own, pull = absolute(get(cost, j)), absolute(alpha * mu * get(w, j))
        if curvature is not None:
            pull = pull + alpha * bend_size(curvature, j, w, image)
        costs = maximum(costs, maximum(own, pull))
        inside = (get(w, j) > get(lower, j)) & (get(w, j) < get(upper, j))
        felt = maximum(felt, where(inside, maximum(own, pull), pull))
        largest = maximum(largest, absolute(get(w, j)))
    faint, quiet = rounding * maximum(felt, minimum(prices, FAR_PRICE * costs)), rounding * largest
    for j in range(n):
        if snap:
            rest = minimum(maximum(none, get(lower, j)), get(upper, j))
            put(w, j, where(absolute(get(w, j)) > quiet, get(w, j), rest))
        point, pull = get(w, j), alpha * mu * get(w, j)
        reduced, total = get(cost, j) + pull, absolute(get(cost, j)) + absolute(pull)
        if curvature is not None:
            turn = alpha * bend(curvature, j, w, image)
            reduced, total = reduced + turn, total + alpha * bend_size(curvature, j, w, image)
            value = value + 0.5 * absolute(turn * point)
        for k in range(system.columns.start[j], system.columns.start[j + 1]):
            term = system.columns.value[k] * get(x, system.columns.column[k])
            reduced, total = reduced + term, total + absolute(term)
        up, down = where(point < get(upper, j), one, none), where(point > get(lower, j), one, none)
        wrong = maximum(up * maximum(-1.0 * reduced, 0.0), down * maximum(reduced, 0.0))
        wrong = where(total > faint, wrong, none)
        worst = maximum(worst, where(wrong > 0.0, wrong / total, none))
        value = value + absolute(get(cost, j) * point) + 0.5 * absolute(pull * point)
        room = where(reduced > 0.0, point - get(lower, j), get(upper, j) - point)
        loss = loss + wrong * minimum(room, largest)
        put(terms, j, total)
    for i in range(m):
        gap, total, share = none - get(r, i), absolute(get(r, i)), none
        for k in range(system.negated.start[i], system.negated.start[i + 1]):
            j = system.negated.column[k]
            if j < n:
                term = system.negated.value[k] * get(w, j)
                gap, total = gap - term, total + absolute(term)
                part = absolute(system.negated.value[k] * get(x, i))
                share = maximum(share, where(part > faint, part / get(terms, j), none))
        wrong = where(absolute(gap) > quiet, absolute(gap), where(total > SILENT * quiet, absolute(gap), none))
        loss = loss + wrong * absolute(get(x, i))
        wrong = where(wrong > 0.0, wrong / total, none)
        if system.inequality[i]:
            wrong = where(gap > 0.0, wrong, minimum(wrong, share))
        worst = maximum(worst, wrong)
    loss = where(loss > faint * largest, loss, none)
    return maximum(worst, where(loss > 0.0, loss / (value + loss), none))


@jit
def iterate(
    system: SplittingSystem,
    data: SplittingData,
    lower: Any,
    upper: Any,
    mu: float,
    limit: int,
    tolerance: float,
    index: Any,
    used: int,
    space: Any,
    record: bool,
    inside: Any,
    answer: SplittingAnswer,
    curvature: Curvature | None = None,
) -> None:
    """Instances `index` of the batch: `limit` iterations, or fewer for those whose residual reaches the tolerance.

    The residual is looked at where z moves by no more than the tolerance, beside the size of the decisions.

    An instance that is done is copied out and iterates on unseen, so that its answer does not depend on its neighbours.
    lower, upper: numbers (N,) that all instances share, or tiles of this one's own. inside: unsigned integers of one bit
    per lane, (limit, N) with `record`, then row k − 1 is about the k-th z; (1, N) otherwise.
    """
    n, N, m = data.c.shape[1], answer.z.shape[1], len(system.pivot)
    z, v, cost, y_last = space[:N], space[N : 2 * N], space[2 * N : 3 * N], space[3 * N : 4 * N]
    terms, x, r = space[4 * N : 5 * N], space[5 * N : 5 * N + m], space[5 * N + m : 5 * N + 2 * m]
    scratch, rounding = space[5 * N + 2 * m :], min(16.0 * np.finfo(answer.w.dtype).eps, MOST_ROUNDING)
    bent, image = space[5 * N + 2 * m + 2 :], space[6 * N + 2 * m + 2 :]  # α Q y and −R y, with a curvature
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
        squares(curvature, y_last, image)
        for j in range(n):
            put(bent, j, alpha * bend(curvature, j, y_last, image))
            put(v, j, get(v, j) - get(bent, j))
    done, leaving = np.zeros(used, np.bool_), np.zeros(used, np.bool_)
    for k in range(1, limit + 1):
        look = k == limit or (tolerance > 0.0 and k % CHECK_EVERY == 0)
        place = k - 1 if record else 0
        gap, size, total = plain * 0.0, least, plain * 0.0
        multipliers(system, v, r, x)
        for j in range(N):
            low, high, charge, keep = get(lower, j), get(upper, j), get(cost, j), smoothed if j < n else plain
            before = get(z, j)
            y = minimum(maximum(before, low), high)
            if curvature is not None:  # noqa: SIM102  (answered where this is compiled)
                if j < n:
                    charge = charge + get(bent, j)
            point = less_pairs(keep * y - charge, system.columns, j, x)
            put(z, j, point)
            if record or look:
                inside[place, j] = bits((point > low) & (point < high))
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
            squares(curvature, y_last, image)
            for j in range(n):
                put(bent, j, alpha * bend(curvature, j, y_last, image))
                put(v, j, get(v, j) - get(bent, j))
        if look:
            # A sum that is not a number makes the residual one that is none.
            put(scratch, 0, gap / size + total * 0.0)
            near = k == limit
            for t in range(used):
                near |= not done[t] and scratch[0].lane[t] <= tolerance
            if not near:
                continue
            missing = relative_residual(
                system, cost, alpha, mu, r, lower, upper, y_last, x, least, rounding, n, tolerance > 0.0, terms,
                curvature, image,
            )  # fmt: skip
            put(scratch, 0, maximum(gap / size, missing) + total * 0.0)
            for t in range(used):
                residual = scratch[0].lane[t]
                leaving[t] = not done[t] and (residual <= tolerance or k == limit)
                if leaving[t]:
                    done[t] = True
                    answer.residual[index[t]], answer.iterations[index[t]] = residual, k
            if leaving.any():
                copy_out(data.c, mu, z, y_last, inside[place], leaving, index, answer)
            if done.all():
                break


@jit
def adjoint(
    system: SplittingSystem,
    alpha: Any,
    mu: float,
    inside: Any,
    iterations: Any,
    gradient: Any,
    index: Any,
    used: int,
    space: Any,
    out: Any,
    curvature: Curvature | None = None,
) -> None:
    """The derivative through every iteration: out (count, n) = (dw/dc)ᵀ gradient for the instances `index`.

    With P the projector onto the null space of M and g the derivative with respect to z⁺, one iteration back is
    p = P g;  c gets −α p;  z gets κ p − α Q p where it lies inside its bounds and g − p elsewhere.
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
        for t in range(used):
            row = index[t]
            if iterations[row] == k:  # from here on the instance takes part
                for j in range(n):
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
                    turn = step * bend(curvature, j, moved, image)
                    put(g, j, get(g, j) - where(inside[k - 2, j], turn, step * 0.0))
    store(charge.lane, index, used, out)


@jit
def jacobian_free(
    system: SplittingSystem, alpha: Any, inside: Any, gradient: Any, index: Any, used: int, space: Any, out: Any
) -> None:
    """out (count, n) = −α P D (gradient, 0) for the instances `index`.

    P projects onto the null space of M; D keeps what lies inside, (count, N) of 1 or 0.
    """
    n, N, m = gradient.shape[1], inside.shape[1], len(system.pivot)
    g, x, scratch = space[:N], space[N : N + m], space[N + m :]
    for first in range(0, n, BLOCK):
        for t in range(len(index)):
            row = index[t]
            for j in range(first, min(first + BLOCK, n)):
                g[j].lane[t] = gradient[row, j] if inside[row, j] else 0.0
    for j in range(n, N):
        put(g, j, 0.0)
    multipliers(system, g, None, x)
    for t in range(len(index)):
        scratch[0].lane[t] = alpha[index[t]]
    step = get(scratch, 0)
    for j in range(n):
        put(g, j, 0.0 - step * less_pairs(get(g, j), system.columns, j, x))
    store(g.lane, index, used, out)
