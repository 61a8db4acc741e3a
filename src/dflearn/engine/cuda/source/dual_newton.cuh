// Semismooth Newton on the dual: dflearn.engine.smoothed.newton by one block.
#pragma once
#include "optimality.cuh"

#define HALVINGS 12
#define SUFFICIENT 1e-4
#define MOST_NOISE 1e5

struct State { double q, residual, excess; };

// At the multipliers y, X or Y: NEWTON_W, NEWTON_INSIDE and the gradient, into the field g of rows; q(y), the natural residual at its largest, and by
// how much it exceeds the tolerance.
NOINLINE State evaluate(const double* y, int g, double tolerance) {
    const Task& q = *TASK;
    double* const scratch = q.scratch;
    const double mu = q.mu;
    double top = 1;
    ROWS { (void)v; top = larger(top, fabs(y[i])); }
    const double price = largest_of(top), near = 4 * ROUNDING * fmin(price / mu, MOST_NOISE);
    Sum value;
    double largest = 0;
    COLUMNS {
        double gradient = v[COST] + column_dot(j, y), at = -gradient / mu, low = q.low(j), high = q.high(j);
        bool off_low = at - low > near, off_high = high - at > near;
        v[NEWTON_INSIDE] = off_low && off_high ? 1 : 0;
        at = off_high ? (off_low ? at : low) : high;
        v[NEWTON_W] = at;
        largest = larger(largest, fabs(at));
        value.add(j / NT, at * (gradient + 0.5 * mu * at));
    }
    reduce<1, 1>(&value, &largest);
    const double noise = ROUNDING * fmax(largest, fmin(price / mu, largest * MOST_NOISE));
    Sum rows;  // what rows add to q
    double s[2] = {0, 0};  // residual, excess
    row_totals<2, 0, 2>(
        [&](int, double value, int at, double* row) {
            double term = value * scratch[NEWTON_W + at];
            row[0] += term;
            row[1] += fabs(term);
        },
        [&](int i, const double* sum, int turn) {
            double r = q.side(i), slope = sum[0] - r, natural = fabs(slope);
            double excess = natural - fmax(tolerance * (sum[1] + fabs(r)), noise);
            row(scratch, i)[g] = slope;
            rows.add(turn, -y[i] * r);
            if (p.inequality[i] && !(y[i] + slope > 0)) { natural = y[i]; excess = y[i] - tolerance; }
            s[0] = larger(s[0], natural);
            s[1] = larger(s[1], excess);
        });
    reduce<1, 2>(&rows, s);
    return {value + rows, s[0], s[1]};
}

// From the multipliers in Y to the solution: Y, NEWTON_W, NEWTON_INSIDE and GRADIENT. → steps; −1: the best that was found
NOINLINE int dual_newton(int limit, int patience, double tolerance) {
    const Task& q = *TASK;
    double* const scratch = q.scratch;
    ROWS { (void)v; if (p.inequality[i]) Y[i] = fmax(Y[i], 0.0); }
    SYNC();
    State state = evaluate(Y, GRADIENT, tolerance);
    double best = LARGEST;
    int waited = 0;
    UNROLL(1) for (int step = 0;; step++) {
        if (state.excess <= 0) return step;
        if (state.residual <= 0.5 * best) { best = state.residual; waited = 0; }
        else if (++waited >= patience) return -1;
        if (step == limit) return -1;
        // Newton's system on the rows in force, slightly damped; the other rows become identity.
        ROWS {
            bool off = p.inequality[i] && !(Y[i] + v[GRADIENT] > 0);
            v[MASK] = off ? 0 : 1;
            v[STEP_Y] = off ? -Y[i] : q.mu * v[GRADIENT];
            v[SHIFT] = 0;
            X[i] = off ? Y[i] : 0;
        }
        SYNC();
        if (p.any_inequality) {  // multipliers that go to zero move the other rows
            COLUMNS v[IMAGE] = v[NEWTON_INSIDE] * column_dot(j, X);
            SYNC();
            row_dots(scratch + IMAGE, [&](int i, double sum, int) { row(scratch, i)[SHIFT] = row(scratch, i)[MASK] * sum; });
            SYNC();
        }
        double damping = 1e-12 + fmin(0.1 * state.residual, 1e-3) * fmin(1.0, 100 * state.residual);
        assemble(NEWTON_INSIDE, damping, NONE, p.any_inequality ? MASK : NONE, NONE);
        factorize(0);
        ROWS X[i] = v[STEP_Y] + v[SHIFT];
        SYNC();
        substitute();
        ROWS v[STEP_Y] = X[i];
        // Projected backtracking.
        double length = 1;
        bool found = false;
        for (int k = 0; k < HALVINGS && !found; k++, length *= 0.5) {
            Sum predicted;
            ROWS {
                double value = Y[i] + length * v[STEP_Y];
                if (p.inequality[i]) value = larger(value, 0.0);
                X[i] = value;
                predicted.add(i / NT, v[GRADIENT] * (value - Y[i]));
            }
            reduce<1, 0>(&predicted, nullptr);
            State trial = evaluate(X, TRIAL_GRADIENT, tolerance);
            bool rise = trial.q - state.q >= SUFFICIENT * predicted && predicted > 0;
            found = rise || trial.residual <= 0.5 * state.residual || trial.excess <= 0;
            if (found) state = trial;
        }
        if (!found) {  // no progress from here
            evaluate(Y, GRADIENT, tolerance);
            return -1;
        }
        ROWS { Y[i] = X[i]; v[GRADIENT] = v[TRIAL_GRADIENT]; }
        SYNC();
    }
}
