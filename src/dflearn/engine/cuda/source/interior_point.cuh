// A primal-dual interior-point method: dflearn.engine.smoothed.interior_point, whose comments say what and why, by one block.
#pragma once
#include "optimality.cuh"

#define TOWARDS_BOUNDARY 0.9995
#define REGULARIZATION 1e-13
#define REFINED 14
#define LATE 20
#define REFINEMENTS 2
#define LATE_SHARE 0.5
#define MANY 100.0  // multipliers beyond which an instance may have no feasible point; they are looked at every PROVE steps
#define PROVE 3
#define FEASIBLE 1e-12
#define PROVEN (-3)

// A point inside the bounds: near −c/μ, or (near) near the one that belongs to the multipliers in Y. width: how far from its
// bounds a variable starts; price: the least multiplier.
NOINLINE void interior_start(bool near, double width, double price) {
    const Task& q = *TASK;
    double* const scratch = q.scratch;
    ROWS {
        Y[i] = !p.inequality[i] ? (near ? Y[i] : 0) : near ? fmax(Y[i], price) : price;
        v[PRICE] = Y[i];
        v[POINT_S] = 0;
    }
    SYNC();
    COLUMNS {
        double low = q.low(j), high = q.high(j), cost = v[COST], pull = column_dot(j, Y);
        bool free = low < high, below = free && low >= -LARGEST, above = free && high <= LARGEST;
        double room = fmin(width, below && above ? 0.5 * high - 0.5 * low : width);
        double at = near ? fmin(fmax(-(cost + pull) / q.mu, low), high) : fmin(fmax(-cost / q.mu, -width), width);
        double gradient = cost + pull + q.mu * at;
        if (below) at = fmax(low + room, at);
        if (above) at = fmin(high - room, at);
        if (!free) at = low;
        if (!near) gradient = cost + pull + q.mu * at;
        v[POINT_W] = at;
        v[GAP_L] = !free ? -1 : below ? fmax(at - low, 0.5 * room) : 0;
        v[GAP_U] = !free ? -1 : above ? fmax(high - at, 0.5 * room) : 0;
        v[PRICE_L] = below ? fmax(gradient, 0.0) + price : 0;
        v[PRICE_U] = above ? fmax(-gradient, 0.0) + price : 0;
    }
    SYNC();
    row_dots(scratch + POINT_W, [&](int i, double sum, int) {
        if (p.inequality[i]) row(scratch, i)[POINT_S] = fmax(q.side(i) - sum, 0.1 * width);
    });
    SYNC();
}

// From the point at hand. → the steps taken; −1: not converged; PROVEN: there is no feasible point.
NOINLINE int interior_point(int limit, double tolerance) {
    const Task& q = *TASK;
    double* const scratch = q.scratch;
    const double mu = q.mu;
    Sum bounds;
    COLUMNS {
        bounds.add(0, (v[GAP_L] > 0 ? 1 : 0) + (v[GAP_U] > 0 ? 1 : 0));
        v[STEP_W] = v[TARGET_L] = v[TARGET_U] = v[INVERSE_L] = v[INVERSE_U] = 0;
    }
    ROWS { Y[i] = v[PRICE]; bounds.add(0, p.inequality[i] ? 1 : 0); }
    reduce<1, 0>(&bounds, nullptr);
    const double each = 1 / fmax(bounds, 1.0);
    double length = 0;
    int result = -1;
    UNROLL(1) for (int step = 0; step <= limit; step++) {
        // Take the step found last; residuals; Θ⁻¹; the predictor's right-hand side.
        Sum products;  // of gaps and slacks with their multipliers
        double t[4] = {0, 1, 0, 0};  // slope, decision, row, price
        COLUMNS {
            double d = v[STEP_W], zl = v[PRICE_L], zu = v[PRICE_U], gl = v[GAP_L], gu = v[GAP_U];
            double move = length * d, at = v[POINT_W] + move;
            bool free = gl >= 0;
            zl += length * (v[TARGET_L] - zl * d) * v[INVERSE_L];
            zu += length * (v[TARGET_U] + zu * d) * v[INVERSE_U];
            if (gl > 0) gl += move;
            if (gu > 0) gu -= move;
            v[POINT_W] = at; v[GAP_L] = gl; v[GAP_U] = gu; v[PRICE_L] = zl; v[PRICE_U] = zu;
            double gradient = (free ? v[COST] + mu * at + column_dot(j, Y) : 0.0) - zl + zu;
            t[0] = larger(t[0], fabs(gradient));
            t[1] = larger(t[1], fabs(at));
            products.add(j / NT, gl * zl + gu * zu);
            double il = gl > 0 ? inverse_of(gl) : 0, iu = gu > 0 ? inverse_of(gu) : 0;
            double inverse = free ? inverse_of(mu + zl * il + zu * iu) : 0;
            v[SLOPE] = gradient; v[INVERSE_L] = il; v[INVERSE_U] = iu; v[THETA] = inverse;
            v[RIGHT] = inverse * (zu - zl - gradient);
        }
        SYNC();
        row_dots(scratch + POINT_W, [&](int i, double activity, int turn) {
            double *v = row(scratch, i), s = v[POINT_S], y = Y[i], left = q.side(i) - s - activity;
            v[MISSING] = left;
            v[RATIO] = p.inequality[i] ? s * inverse_of(y) : 0.0;
            t[2] = larger(t[2], fabs(left));
            t[3] = larger(t[3], fabs(y));
            products.add(turn, s * y);
        });
        reduce<1, 4>(&products, t);
        const double gap = products, residual = larger(t[2] * inverse_of(t[1]), t[0] * inverse_of(larger(1.0, t[3])));
        if (residual <= fmax(tolerance, FEASIBLE) && gap * each <= tolerance) { result = step; break; }
        if (!(gap <= LARGEST)) break;
        if (t[3] > MANY && (step % PROVE == 0 || step == limit) && no_feasible_point()) { result = PROVEN; break; }
        if (step == limit) break;

        assemble(THETA, REGULARIZATION, RATIO, NONE, NONE);
        factorize(0);
        // Predictor: straight to complementarity zero.
        row_dots(scratch + RIGHT, [&](int i, double sum, int) {
            double* v = row(scratch, i);
            X[i] = sum - v[MISSING] - (p.inequality[i] ? v[POINT_S] : 0.0);
        });
        SYNC();
        solve_system(step >= REFINED ? REFINEMENTS : 0);
        Sum bend;  // of the gap along the step
        double largest = 1;  // share of a distance
        COLUMNS {
            double move = v[RIGHT] - v[THETA] * column_dot(j, X), dl = move * v[INVERSE_L], du = move * v[INVERSE_U];
            v[STEP_W] = move;
            bend.add(j / NT, move * (v[PRICE_U] * (1 - du) - v[PRICE_L] * (1 + dl)));
            largest = larger(largest, larger(larger(-dl, 1 + dl), larger(du, 1 - du)));
        }
        ROWS if (p.inequality[i]) {
            double s = v[POINT_S], share = X[i] * inverse_of(Y[i]), ds = -s - s * share;
            v[STEP_S] = ds;
            bend.add(i / NT, ds * X[i]);
            largest = larger(largest, fmax(1 + share, -share));
        }
        reduce<1, 1>(&bend, &largest);
        length = 1 / largest;
        // Corrector: to a share of the gap that depends on how far the predictor got, with its second-order terms; late ones
        // without them, which can lead round in circles.
        double share = gap > 0 ? fmax((1 - length) * gap + length * length * bend, 0.0) / gap : 0, second = 1;
        if (step >= LATE) { share = fmin(share, LATE_SHARE); second = 0; }
        const double aim = share * share * share * gap * each;
        COLUMNS {
            double move = v[STEP_W], zl = v[PRICE_L], zu = v[PRICE_U], gl = v[GAP_L], gu = v[GAP_U], il = v[INVERSE_L], iu = v[INVERSE_U];
            double tl = gl > 0 ? aim + second * move * zl * (1 + move * il) - gl * zl : 0;
            double tu = gu > 0 ? aim - second * move * zu * (1 - move * iu) - gu * zu : 0;
            v[TARGET_L] = tl; v[TARGET_U] = tu;
            v[RIGHT] = v[THETA] * (tl * il - tu * iu - v[SLOPE]);
        }
        ROWS if (p.inequality[i]) v[TARGET_S] = aim - second * v[STEP_S] * X[i] - v[POINT_S] * Y[i];
        SYNC();
        row_dots(scratch + RIGHT, [&](int i, double sum, int) {
            double* v = row(scratch, i);
            X[i] = sum - v[MISSING] + (p.inequality[i] ? v[TARGET_S] * inverse_of(Y[i]) : 0.0);
        });
        SYNC();
        solve_system(step >= REFINED ? REFINEMENTS : 0);
        double worst = 1;
        COLUMNS {
            double move = v[RIGHT] - v[THETA] * column_dot(j, X), zl = v[PRICE_L], zu = v[PRICE_U], il = v[INVERSE_L], iu = v[INVERSE_U];
            v[STEP_W] = move;
            worst = larger(worst, larger(-move * il, move * iu));
            if (zl > 0) worst = larger(worst, (zl * move - v[TARGET_L]) * il * inverse_of(zl));
            if (zu > 0) worst = larger(worst, (-zu * move - v[TARGET_U]) * iu * inverse_of(zu));
        }
        ROWS if (p.inequality[i]) {
            double s = v[POINT_S], per = inverse_of(Y[i]), ds = (v[TARGET_S] - s * X[i]) * per;
            v[STEP_S] = ds;
            worst = larger(worst, larger(-ds * inverse_of(s), -X[i] * per));
        }
        // A quadratic objective ties primal and dual: one length for both.
        length = fmin(TOWARDS_BOUNDARY / largest_of(worst), 1.0);
        ROWS {
            Y[i] += length * X[i];
            if (p.inequality[i]) v[POINT_S] += length * v[STEP_S];
        }
        SYNC();
    }
    SYNC();
    ROWS v[PRICE] = Y[i];
    SYNC();
    return result;
}
