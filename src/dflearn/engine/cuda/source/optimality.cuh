// What an answer is worth, and the proof that there is none: dflearn.engine.smoothed.system by one block.
#pragma once
#include "factor.cuh"

#define ROUNDING (16 * 2.220446049250313e-16)
#define ZERO 1e-10   // a smaller reduced cost, relative to its terms, does not pull further than |w_j|
#define NOTHING 1e-13  // a reduced cost that is smaller, relative to its terms, is rounding
#define DOUBT 1e-7   // of the objective, what rounding of reduced costs may hide before it counts
#define PROOF 1e-7
#define PROOF_EPSILON 1e-7
#define FAINT 1e-11
#define CANCELLED 1e-10
#define FAR_AWAY 1e6

// The error of w, a field of columns, and Y by the rule of dflearn.engine.certify, without its allowance for rounding (what passes here passes
// there): kernels.certify.check_answers by one block, in the units of the block. Infinite where one of them is no number.
NOINLINE double measure(int w) {
    const Task& q = *TASK;
    double* const scratch = q.scratch;
    const double *y = Y, mu = q.mu;
    Sum all, t[3];  // all numbers; value, gap, doubt
    double worst = 0;
    ROWS { (void)v; all.add(i / NT, fabs(y[i])); }
    COLUMNS {
        double at = v[w], cost = v[COST], pull = mu * at, reduced = cost + pull, total = fabs(cost) + fabs(pull);
        column_terms(j, [&](double value, int i) {
            double term = p.inequality[i] && !(y[i] > 0) ? 0 : value * y[i];
            reduced += term;
            total += fabs(term);
        });
        all.add(j / NT, fabs(at));
        t[0].add(j / NT, (fabs(cost) + 0.5 * fabs(pull)) * fabs(at));
        v[SIZE] = total;
        t[2].add(j / NT, ROUNDING / 16 * total * fabs(at));
        const double bound = reduced > 0 ? q.low(j) : q.high(j), off = fabs(at - bound);
        if (reduced == 0 || off == 0) continue;
        const double share = fabs(reduced) / total;
        worst = larger(worst, fabs(bound) <= LARGEST ? fmin(share, off / fmax(fabs(at), fabs(bound))) : share);
        const double far = share > ZERO ? off : fmin(off, fabs(at));
        if (share > NOTHING) t[1].add(j / NT, fabs(reduced) * (mu > 0 ? fmin(far, fabs(reduced) / mu) : far));
    }
    SYNC();
    row_totals<2, 1, 1>(
        [&](int i, double value, int at, double* row) {
            double term = value * scratch[w + at];
            row[0] += term;
            row[1] += fabs(term);
            if (i >= 0 && p.inequality[i] && y[i] > 0) row[2] = larger(row[2], fabs(value * y[i]) / scratch[SIZE + at]);
        },
        [&](int i, const double* row, int turn) {
            const double gap = row[0] - q.side(i), total = row[1] + fabs(q.side(i));
            if (gap == 0) return;
            const bool spare = p.inequality[i] && gap < 0;
            if (!p.inequality[i] || y[i] > 0) t[1].add(turn, fabs(gap * y[i]));
            if (!spare) worst = larger(worst, fabs(gap) / total);
            else if (y[i] > 0) worst = larger(worst, fmin(fabs(gap) / total, row[2]));
        });
    Sum sums[4] = {t[0], t[1], all, t[2]};
    reduce<4, 1>(sums, &worst);
    const double value = sums[0], number = sums[2], doubt = sums[3], gap = fmax(sums[1], value > 0 && doubt > DOUBT * value ? doubt : 0);
    if (gap > 0) worst = larger(worst, value > 0 ? gap / value : INFINITE);
    return worst <= LARGEST && number <= LARGEST ? worst : INFINITE;
}

// margin: by how much min yᵀM w over the bounds exceeds yᵀr, y in X, beside the terms; the same less what variables without
// bounds undo if they go far; the largest (yᵀM)_j of those, beside its terms. There loose becomes 1/Σ_i M_ij².
DEVICE void proof_margin(double (&margin)[3]) {
    const Task& q = *TASK;
    double* const scratch = q.scratch;
    Sum t[3];  // value, terms, undone
    double left = 0;
    ROWS { (void)v; double term = X[i] * q.side(i); t[0].add(i / NT, -term); t[1].add(i / NT, fabs(term)); }
    COLUMNS {
        double slope = 0, size = 1e-300, square = 1e-300;
        column_terms(j, [&](double value, int i) {
            double term = value * X[i];
            slope += term;
            size += fabs(term);
            square += value * value;
        });
        double bound = slope > 0 ? q.low(j) : q.high(j);
        if (fabs(bound) <= 1e300) { t[0].add(j / NT, slope * bound); t[1].add(j / NT, fabs(slope * bound)); }
        else {
            t[2].add(j / NT, FAR_AWAY * fabs(slope));
            left = larger(left, fabs(slope) / size);
            v[LOOSE] = 1 / square;
        }
    }
    reduce<3, 1>(t, &left);
    margin[0] = t[0] / (t[1] + 1e-300);
    margin[1] = (t[0] - t[2]) / (t[1] + 1e-300);
    margin[2] = left;
}

// Do the multipliers in Y, which grow and grow, prove that there is no feasible point?
NOINLINE bool no_feasible_point() {
    double* const scratch = TASK->scratch;
    double top = 1e-300, margin[3];
    ROWS { (void)v; top = larger(top, fabs(Y[i])); }
    top = largest_of(top);
    ROWS { (void)v; X[i] = p.inequality[i] ? fmax(Y[i] / top, 0.0) : Y[i] / top; }
    COLUMNS v[LOOSE] = 0;
    SYNC();
    for (int attempt = 0;; attempt++) {
        proof_margin(margin);
        if (margin[1] > PROOF && margin[2] <= CANCELLED) return true;
        if (!(margin[0] > PROOF) || attempt == 3) return false;
        assemble(LOOSE, PROOF_EPSILON, NONE, NONE, NONE);
        factorize(0);
        for (int k = 0; k < 2; k++) {
            substitute();
            ROWS { (void)v; X[i] *= PROOF_EPSILON; }
            SYNC();
        }
        ROWS {
            (void)v;
            double price = fabs(X[i]) > FAINT ? X[i] : 0;
            X[i] = p.inequality[i] ? fmax(price, 0.0) : price;
        }
        SYNC();
    }
}
