// From an interior point to the face of the solution: dflearn.kernels.face by one block.
#pragma once
#include "interior_point.cuh"

#define CORRECTIONS 6
#define FACE_DAMPING 1e-12

// The face nearest to the interior point at hand: face_w, face_inside, face_in_force, and its multipliers in Y.
DEVICE void snap() {
    const Task q = *TASK;
    COLUMNS {
        Ends e(q, j);
        bool low = e.below && point_zl(q)[j] > point_gl(q)[j], high = e.above && point_zu(q)[j] > point_gu(q)[j];
        double w = high ? e.high : low ? e.low : fmin(fmax(point_w(q)[j], e.low), e.high);
        face_w(q)[j] = w;
        face_inside(q)[j] = w > e.low && w < e.high ? 1 : 0;
    }
    ROWS {
        bool on = !p.inequality[i] || prices(q)[i] > point_s(q)[i];
        face_in_force(q)[i] = on ? 1 : 0;
        Y[i] = on ? prices(q)[i] : 0;
    }
    SYNC();
}

// One correction of w and y on their face; what leaves its bounds is cut off, and the face changes accordingly.
NOINLINE void correct() {
    const Task q = *TASK;
    const double mu = q.mu;
    double *w = face_w(q), *inside = face_inside(q), *reduced = face_slope(q), *on = face_in_force(q);
    COLUMNS {
        double at = w[j], cost = q.cost(j) + mu * at + column_dot(j, Y);
        // A variable that its reduced cost pulls off its bound becomes free.
        if ((at > q.low(j) && cost > 0) || (at < q.high(j) && cost < 0)) inside[j] = 1;
        reduced[j] = cost * inside[j];
    }
    SYNC();
    row_totals<2, 0>(
        [&](int, double value, int j, double* row) { row[0] += value * w[j]; row[1] += value * reduced[j]; },
        [&](int i, const double* row) {
            double left = q.side(i) - row[0];
            if (p.inequality[i] && left < 0) on[i] = 1;  // a row that is broken comes into force
            X[i] = on[i] * (-mu * left - row[1]);
        });
    SYNC();
    assemble(inside, FACE_DAMPING, 0, p.any_inequality ? on : 0, diagonal(q));
    factorize(diagonal(q), FACE_DAMPING);
    substitute();
    COLUMNS {
        double low = q.low(j), high = q.high(j), at = w[j];
        if (inside[j] > 0) at = fmin(fmax(at - (reduced[j] + column_dot(j, X)) / mu, low), high);
        w[j] = at;
        inside[j] = at > low && at < high ? 1 : 0;
    }
    ROWS {
        double price = Y[i] + X[i];
        if (p.inequality[i]) {
            price = fmax(price, 0.0);
            if (!(price > 0)) on[i] = 0;
        }
        Y[i] = price;
    }
    SYNC();
}

// The answer becomes w (n), Y and their face.
DEVICE void keep(const double* w, const double* inside, const double* in_force) {
    const Task q = *TASK;
    COLUMNS { q.w[j] = w[j]; q.inside[j] = inside[j] > 0; }
    ROWS { q.y[i] = Y[i]; q.in_force[i] = in_force[i] > 0; }
    SYNC();
}

// The best of the corrections on the interior point's face becomes the answer where it is better than `best`. → its residual
NOINLINE double finish_on_face(double tolerance, double best) {
    const Task q = *TASK;
    snap();
    for (int k = 0; k < CORRECTIONS && !(best <= tolerance); k++) {
        correct();
        double residual = measure(face_w(q));
        if (residual < best) {
            best = residual;
            keep(face_w(q), face_inside(q), face_in_force(q));
        }
    }
    return best;
}
