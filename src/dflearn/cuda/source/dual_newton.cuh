// Semismooth Newton on the dual: dflearn.kernels.dual_newton by one block.
#pragma once
#include "optimality.cuh"

#define HALVINGS 12
#define SUFFICIENT 1e-4
#define MOST_NOISE 1e5

struct State { double q, residual, excess; };

// At the multipliers y, X or Y: newton_w, newton_inside and the gradient g; q(y), the natural residual at its largest, and by
// how much it exceeds the tolerance.
NOINLINE State evaluate(const double* y, double* g, double tolerance) {
    const Task q = *TASK;
    const double mu = q.mu;
    double *w = newton_w(q), *inside = newton_inside(q), top = 1;
    ROWS top = fmax(top, fabs(y[i]));
    const double price = largest_of(top), near = 4 * ROUNDING * fmin(price / mu, MOST_NOISE);
    double t[2] = {0, 0};  // q; largest decision
    COLUMNS {
        double gradient = q.cost(j) + column_dot(j, y), at = -gradient / mu, low = q.low(j), high = q.high(j);
        bool off_low = at - low > near, off_high = high - at > near;
        inside[j] = off_low && off_high ? 1 : 0;
        at = off_high ? (off_low ? at : low) : high;
        w[j] = at;
        t[1] = fmax(t[1], fabs(at));
        t[0] += at * (gradient + 0.5 * mu * at);
    }
    reduce<1, 1>(t);
    const double noise = ROUNDING * fmax(t[1], fmin(price / mu, t[1] * MOST_NOISE));
    double s[3] = {0, 0, 0};  // what rows add to q; residual, excess
    row_totals<2, 0>(
        [&](int, double value, int j, double* row) {
            double term = value * w[j];
            row[0] += term;
            row[1] += fabs(term);
        },
        [&](int i, const double* row) {
            double r = q.side(i), slope = row[0] - r, natural = fabs(slope);
            double excess = natural - fmax(tolerance * (row[1] + fabs(r)), noise);
            g[i] = slope;
            s[0] -= y[i] * r;
            if (p.inequality[i] && !(y[i] + slope > 0)) { natural = y[i]; excess = y[i] - tolerance; }
            s[1] = fmax(s[1], natural);
            s[2] = fmax(s[2], excess);
        });
    reduce<1, 2>(s);
    return {t[0] + s[0], s[1], s[2]};
}

// From the multipliers in Y to the solution: Y, newton_w, newton_inside and newton_g. → steps; −1: the best that was found
NOINLINE int dual_newton(int limit, int patience, double tolerance) {
    const Task q = *TASK;
    double *x = X, *y = Y, *g = newton_g(q), *mask = newton_mask(q), *dy = newton_step(q), *idle = shift(q);
    ROWS if (p.inequality[i]) y[i] = fmax(y[i], 0.0);
    SYNC();
    State state = evaluate(y, g, tolerance);
    double best = LARGEST;
    int waited = 0;
    UNROLL(1) for (int step = 0;; step++) {
        if (state.excess <= 0) return step;
        if (state.residual <= 0.5 * best) { best = state.residual; waited = 0; }
        else if (++waited >= patience) return -1;
        if (step == limit) return -1;
        // Newton's system on the rows in force, slightly damped; the other rows become identity.
        ROWS {
            bool off = p.inequality[i] && !(y[i] + g[i] > 0);
            mask[i] = off ? 0 : 1;
            dy[i] = off ? -y[i] : q.mu * g[i];
            x[i] = off ? y[i] : 0;
        }
        SYNC();
        if (p.any_inequality) {  // multipliers that go to zero move the other rows
            COLUMNS image(q)[j] = newton_inside(q)[j] * column_dot(j, x);
            SYNC();
            row_dots(image(q), [&](int i, double v) { idle[i] = mask[i] * v; });
            SYNC();
        }
        double damping = 1e-12 + fmin(0.1 * state.residual, 1e-3) * fmin(1.0, 100 * state.residual);
        assemble(newton_inside(q), damping, 0, p.any_inequality ? mask : 0, 0);
        factorize(0, 0);
        ROWS x[i] = dy[i] + (p.any_inequality ? idle[i] : 0.0);
        SYNC();
        substitute();
        ROWS dy[i] = x[i];
        // Projected backtracking.
        double length = 1;
        bool found = false;
        for (int k = 0; k < HALVINGS && !found; k++, length *= 0.5) {
            double predicted[1] = {0};
            ROWS {
                double value = y[i] + length * dy[i];
                if (p.inequality[i]) value = fmax(value, 0.0);
                x[i] = value;
                predicted[0] += g[i] * (value - y[i]);
            }
            reduce<1, 0>(predicted);
            State trial = evaluate(x, trial_g(q), tolerance);
            bool rise = trial.q - state.q >= SUFFICIENT * predicted[0] && predicted[0] > 0;
            found = rise || trial.residual <= 0.5 * state.residual || trial.excess <= 0;
            if (found) state = trial;
        }
        if (!found) {  // no progress from here
            evaluate(y, g, tolerance);
            return -1;
        }
        ROWS { y[i] = x[i]; g[i] = trial_g(q)[i]; }
        SYNC();
    }
}
