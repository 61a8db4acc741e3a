// From an interior point to the face of the solution: dflearn.engine.smoothed.newton by one block.
#pragma once
#include "interior_point.cuh"

#define CORRECTIONS 6
#define FACE_DAMPING 1e-12
#define RESIDUE 1e-14  // in the block's units: a decision this close to a bound is rounding; the measure says whether the rule holds

// The face nearest to the interior point at hand: FACE_W, FACE_INSIDE, IN_FORCE, and its multipliers in Y.
DEVICE void snap() {
    const Task& q = *TASK;
    double* const scratch = q.scratch;
    COLUMNS {
        double low = q.low(j), high = q.high(j), at = fmin(fmax(v[POINT_W], low), high);
        if (v[GAP_L] > 0 && v[PRICE_L] > v[GAP_L]) at = low;
        if (v[GAP_U] > 0 && v[PRICE_U] > v[GAP_U]) at = high;
        v[FACE_W] = at;
        v[FACE_INSIDE] = at > low && at < high ? 1 : 0;
    }
    ROWS {
        bool on = !p.inequality[i] || v[PRICE] > v[POINT_S];
        v[IN_FORCE] = on ? 1 : 0;
        Y[i] = on ? v[PRICE] : 0;
    }
    SYNC();
}

// One correction of w and y on their face; what leaves its bounds is cut off, and the face changes accordingly.
NOINLINE void correct() {
    const Task& q = *TASK;
    double* const scratch = q.scratch;
    const double mu = q.mu;
    COLUMNS {
        double at = v[FACE_W], cost = v[COST] + mu * at + column_dot(j, Y);
        // A variable that its reduced cost pulls off its bound becomes free.
        if ((at > q.low(j) && cost > 0) || (at < q.high(j) && cost < 0)) v[FACE_INSIDE] = 1;
        v[FACE_SLOPE] = cost * v[FACE_INSIDE];
    }
    SYNC();
    row_totals<2, 0, 2>(
        [&](int, double value, int at, double* sum) {
            sum[0] += value * scratch[FACE_W + at];
            sum[1] += value * scratch[FACE_SLOPE + at];
        },
        [&](int i, const double* sum, int) {
            double *v = row(scratch, i), left = q.side(i) - sum[0];
            if (p.inequality[i] && left < 0) v[IN_FORCE] = 1;  // a row that is broken comes into force
            X[i] = v[IN_FORCE] * (-mu * left - sum[1]);
        });
    SYNC();
    assemble(FACE_INSIDE, FACE_DAMPING, NONE, p.any_inequality ? IN_FORCE : NONE, DIAGONAL);
    factorize(FACE_DAMPING);
    substitute();
    COLUMNS {
        double low = q.low(j), high = q.high(j), at = v[FACE_W];
        if (v[FACE_INSIDE] > 0) at = fmin(fmax(at - (v[FACE_SLOPE] + column_dot(j, X)) / mu, low), high);
        if (at - low <= RESIDUE) at = low;
        if (high - at <= RESIDUE) at = high;
        v[FACE_W] = at;
        v[FACE_INSIDE] = at > low && at < high ? 1 : 0;
    }
    ROWS {
        double price = Y[i] + X[i];
        if (p.inequality[i]) {
            price = fmax(price, 0.0);
            if (!(price > 0)) v[IN_FORCE] = 0;
        }
        Y[i] = price;
    }
    SYNC();
}

// The answer becomes w, Y and their face: fields of columns and of rows.
DEVICE void keep(int w, int inside, int in_force) {
    const Task& q = *TASK;
    double* const scratch = q.scratch;
    COLUMNS { q.w[j] = v[w]; q.inside[j] = v[inside] > 0; }
    ROWS { q.y[i] = Y[i]; q.in_force[i] = v[in_force] > 0; }
    SYNC();
}

// The best of the corrections on the interior point's face becomes the answer where it is better than `best`. → its residual
NOINLINE double finish_on_face(double tolerance, double best) {
    snap();
    for (int k = 0; k < CORRECTIONS && !(best <= tolerance); k++) {
        correct();
        double residual = measure(FACE_W);
        if (residual < best) {
            best = residual;
            keep(FACE_W, FACE_INSIDE, IN_FORCE);
        }
    }
    return best;
}
