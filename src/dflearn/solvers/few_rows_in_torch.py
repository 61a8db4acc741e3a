"""The dual simplex method of `kernels.few_row_lp` in torch, for a GPU: a step of all instances at once, by products.

It stops at a limit, and says which instances it finished; the others (infeasible, cycling, singular) are the CPU's.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dflearn.kernels.few_row_lp import (
    AT_LOWER,
    AT_UPPER,
    BASIC,
    FEASIBILITY,
    NOISE,
    NONE,
    OPTIMAL,
    OPTIMALITY,
    PIVOT,
    ROUNDING,
)

LOOK_EVERY = 4  # steps between two looks at whether all are through


def few_row_lp(
    device: torch.device, matrix: np.ndarray, equalities: int, objective: np.ndarray, right: np.ndarray, lowest: np.ndarray,
    highest: np.ndarray, start: np.ndarray, decision: np.ndarray, row_prices: np.ndarray, status: np.ndarray,
) -> None:  # fmt: skip
    """`kernels.few_row_lp.solve_batch` on a device; the arguments are the same, arrays in float64."""
    c, rows, side, lower, upper = (
        torch.tensor(part).to(device) for part in (objective, matrix, right, lowest, highest)
    )
    (m, n), count = rows.shape, len(c)
    side, lower, upper = (part.expand(count, -1) for part in (side, lower, upper))
    room = side - torch.where(rows > 0, rows * lower[:, None, :], rows * upper[:, None, :]).sum(-1)
    room[:, :equalities] = 0.0
    solved, hopeless = torch.zeros(count, dtype=torch.bool, device=c.device), (room < 0).any(1)
    F = torch.cat([rows, torch.eye(m, dtype=c.dtype, device=c.device)], 1)
    costs, low, high = (
        torch.cat(pair, 1) for pair in ((c, torch.zeros_like(room)), (lower, torch.zeros_like(room)), (upper, room))
    )
    largest, scale = rows.abs().amax(1), c.abs().amax(1) if n else c.new_zeros(count)
    codes, basis = _first_basis(start, count, n, m, c.device)
    w, prices, lines = torch.zeros_like(c), torch.zeros_like(room), torch.arange(count, device=c.device)
    for step in range(50 + 10 * m):
        if step % LOOK_EVERY == 0 and bool((solved | hopeless).all()):
            break
        going = ~(solved | hopeless)
        inverse, info = torch.linalg.inv_ex(F.T[basis].transpose(1, 2))
        hopeless = hopeless | (going & ((info != 0) | ~torch.isfinite(inverse).all(-1).all(-1)))
        residue = inverse.abs() <= ROUNDING * inverse.abs().amax(-1, keepdim=True)
        inverse = torch.where(hopeless[:, None, None] | residue, 0.0, inverse)
        # Prices and reduced costs; every nonbasic variable goes to the bound that its reduced cost asks for.
        price = (costs.gather(1, basis)[:, None] @ inverse)[:, 0]
        reduced = costs - price @ F
        small = OPTIMALITY * (scale + (price.abs() * largest.clamp(min=1.0)).sum(1))[:, None]
        felt = torch.minimum(small, OPTIMALITY * (costs.abs() + price.abs() @ F.abs()))
        asked = torch.where(reduced > felt, AT_LOWER, torch.where(reduced < -felt, AT_UPPER, codes))
        codes = torch.where((codes == BASIC) | ~going[:, None], codes, asked)
        basic = codes == BASIC
        at = torch.where(basic, 0.0, torch.where(codes == AT_UPPER, high, low))
        value = (inverse @ (side - at @ F.T)[..., None])[..., 0]
        terms = side.abs() + at.scatter(1, basis, value).abs() @ F.abs().T
        noise = (inverse.abs() @ terms[..., None])[..., 0]
        # Basic variables; the one that breaks a bound most leaves.
        least, most = low.gather(1, basis), high.gather(1, basis)
        violation = torch.maximum(least - value, value - most)
        own = terms.gather(1, (basis - n).clamp(min=0))
        size = torch.where(basis >= n, own, torch.where(value < least, least.abs(), most.abs()))
        allowed = torch.where(violation > 0, torch.maximum(FEASIBILITY * size, NOISE * noise), 0.0)
        broken = violation > allowed
        held = torch.where(most - value <= ROUNDING * noise, most, value)
        held = torch.where(value - least <= ROUNDING * noise, least, held)
        through = going & ~hopeless & ~broken.any(1)
        point = at.scatter(1, basis, torch.where(broken, 0.0, held))[:, :n]
        w, prices = torch.where(through[:, None], point, w), torch.where(through[:, None], price, prices)
        solved = solved | through
        # Along its row: the candidate at which the weights, added in the order of the ratios, reach what is missing.
        leaving = torch.where(broken, violation, -1.0).argmax(1)
        worst, margin = (part.gather(1, leaving[:, None]) for part in (violation, allowed))
        up = (value < least).gather(1, leaving[:, None])
        row = inverse[lines, leaving]
        alpha, width = row @ F, high - low
        pivot = PIVOT * (row.abs() * largest).amax(1, keepdim=True)
        helps = ((alpha < 0) == (up == (codes == AT_LOWER))) & ~basic & (width > 0) & (alpha.abs() > pivot)
        weight = torch.where(helps, alpha.abs() * width, 0.0)
        order = torch.where(helps, reduced.abs() / alpha.abs(), torch.inf).argsort(1)
        reached = weight.gather(1, order).cumsum(1)
        hopeless = hopeless | (
            going & ~through & ((reached[:, -1:] < worst - margin) | ~helps.any(1, keepdim=True))[:, 0]
        )
        place = torch.minimum((reached < worst).sum(1), helps.sum(1) - 1).clamp(min=0)
        entering = order.gather(1, place[:, None])
        moves = (going & ~through & ~hopeless)[:, None]
        gone = basis.gather(1, leaving[:, None])
        changed = codes.scatter(1, gone, torch.where(up, AT_LOWER, AT_UPPER).to(codes)).scatter(1, entering, BASIC)
        codes = torch.where(moves, changed, codes)
        basis = torch.where(moves, basis.scatter(1, leaving[:, None], entering), basis)
    at_side = torch.arange(n + m, device=c.device) >= n + equalities  # a slack of zero is a row at its upper side
    told = torch.where(at_side & (codes == AT_LOWER), AT_UPPER, codes)
    if len(start):
        start[:] = torch.where(solved[:, None], told, NONE).cpu()
    decision[:], row_prices[:], status[solved.cpu().numpy()] = w.cpu(), prices.cpu(), OPTIMAL


def _first_basis(start: np.ndarray, count: int, n: int, m: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Codes `(count, n + m)` and the basic variables `(count, m)`: those of the start where it is a basis, else the slacks."""
    codes = torch.full((count, n + m), AT_LOWER, dtype=torch.int64, device=device)
    codes[:, n:] = BASIC
    basis = torch.arange(n, n + m, device=device).expand(count, -1)
    if not len(start):
        return codes, basis.clone()
    given = torch.tensor(start).to(device, torch.int64)
    basic, above = given == BASIC, given == AT_UPPER
    above[:, n:] = False
    known = (basic.sum(1) == m) & (given[:, 0] >= 0)
    own = torch.where(basic, BASIC, torch.where(above, AT_UPPER, AT_LOWER))
    places = torch.sort(basic.to(torch.int8), dim=1, descending=True, stable=True).indices[:, :m]
    return torch.where(known[:, None], own, codes), torch.where(known[:, None], places, basis)
