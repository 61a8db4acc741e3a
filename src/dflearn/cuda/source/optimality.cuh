// What an answer is worth, and the proof that there is none: dflearn.kernels.optimality by one block.
#pragma once
#include "factor.cuh"

#define EPS 2.220446049250313e-16
#define ROUNDING (16 * EPS)
#define SILENT 64.0
#define FAR_PRICE 10.0
#define DOUBT 1e-7
#define PROOF 1e-7
#define PROOF_EPSILON 1e-7
#define FAINT 1e-11
#define CANCELLED 1e-10
#define FAR_AWAY 1e6

// The relative residual of w, a field of columns, and Y; infinite where one of them is no number.
NOINLINE double measure(int w) {
    const Task& q = *TASK;
    double* const scratch = q.scratch;
    const double *y = Y, mu = q.mu;
    Sum all;
    double a[4] = {0, 0, 0, 0};  // largest decision, cost, felt cost, price
    COLUMNS {
        double at = v[w], cost = fabs(v[COST]), pull = fabs(mu * at);
        bool inside = at > q.low(j) && at < q.high(j);
        all.add(j / NT, fabs(at));
        a[0] = larger(a[0], fabs(at));
        a[1] = larger(a[1], fmax(cost, pull));
        a[2] = larger(a[2], inside ? fmax(cost, pull) : pull);
    }
    ROWS { (void)v; all.add(i / NT, fabs(y[i])); a[3] = larger(a[3], fabs(y[i])); }
    reduce<1, 4>(&all, a);
    const double largest = a[0], faint = ROUNDING * fmax(a[2], fmin(a[3], FAR_PRICE * a[1]));
    Sum t[3];  // value, loss, doubt
    double worst = 0;
    COLUMNS {
        double at = v[w], cost = v[COST], pull = mu * at, reduced = cost + pull, total = fabs(cost) + fabs(pull);
        column_terms(j, [&](double value, int i) {
            double term = value * y[i];
            reduced += term;
            total += fabs(term);
        });
        t[0].add(j / NT, fabs(cost * at) + 0.5 * fabs(pull * at));
        t[2].add(j / NT, EPS * total * fabs(at));
        double wrong = 0, low = q.low(j), high = q.high(j);
        if (at < high) wrong = larger(wrong, -reduced);
        if (at > low) wrong = larger(wrong, reduced);
        if (!(total > faint)) wrong = 0;
        if (wrong > 0) {
            t[1].add(j / NT, wrong * fmin(reduced > 0 ? at - low : high - at, largest));
            worst = larger(worst, wrong / total);
        }
        v[SIZE] = total;
    }
    SYNC();
    const double loud = fmax(largest, q.least), quiet = ROUNDING * loud;
    row_totals<2, 1, 1>(
        [&](int i, double value, int at, double* row) {
            double term = value * scratch[w + at];
            row[0] += term;
            row[1] += fabs(term);
            if (i >= 0 && p.inequality[i]) {
                double part = fabs(value * y[i]);
                if (part > faint) row[2] = larger(row[2], part / scratch[SIZE + at]);
            }
        },
        [&](int i, const double* row, int turn) {
            double gap = row[0] - q.side(i), total = row[1] + fabs(q.side(i));
            double wrong = fabs(gap) > quiet || total > SILENT * quiet ? fabs(gap) : 0;
            t[1].add(turn, wrong * fabs(y[i]));
            if (!(wrong > 0)) return;
            wrong /= total;
            if (p.inequality[i] && !(gap > 0)) wrong = y[i] > 0 ? fmin(wrong, row[2]) : 0;
            worst = larger(worst, wrong);
        });
    reduce<3, 1>(t, &worst);
    const double value = t[0], loss = t[1], doubt = t[2];
    if (loss > faint * loud) worst = larger(worst, loss / (value + loss));
    if (doubt > DOUBT * value) worst = larger(worst, doubt / (value + doubt));
    return worst <= LARGEST && all <= LARGEST ? worst : INFINITE;
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
