// A primal-dual interior-point method: dflearn.kernels.interior_point, whose comments say what and why, by one block.
#pragma once
#include "optimality.cuh"

#define TOWARDS_BOUNDARY 0.9995
#define REGULARIZATION 1e-13
#define REFINED 14
#define REFINEMENTS 2
#define MANY 100.0  // multipliers beyond which an instance may have no feasible point; they are looked at every PROVE steps
#define PROVE 3
#define FEASIBLE 1e-12
#define PROVEN (-2)

struct Ends {  // of a variable
    double low, high;
    bool free, below, above;
    MEMBER Ends(const Task& q, int j) : low(q.low(j)), high(q.high(j)) {
        free = low < high;
        below = free && low >= -LARGEST;
        above = free && high <= LARGEST;
    }
};

// A point inside the bounds: near −c/μ, or (near) near the one that belongs to the multipliers in Y. width: how far from its
// bounds a variable starts; price: the least multiplier.
NOINLINE void interior_start(bool near, double width, double price) {
    const Task q = *TASK;
    ROWS Y[i] = !p.inequality[i] ? (near ? Y[i] : 0) : near ? fmax(Y[i], price) : price;
    SYNC();
    COLUMNS {
        Ends e(q, j);
        double cost = q.cost(j), pull = column_dot(j, Y);
        double room = fmin(width, e.below && e.above ? 0.5 * e.high - 0.5 * e.low : width);
        double at = near ? fmin(fmax(-(cost + pull) / q.mu, e.low), e.high) : fmin(fmax(-cost / q.mu, -width), width);
        double gradient = cost + pull + q.mu * at;
        if (e.below) at = fmax(e.low + room, at);
        if (e.above) at = fmin(e.high - room, at);
        if (!e.free) at = e.low;
        if (!near) gradient = cost + pull + q.mu * at;
        point_w(q)[j] = at;
        point_gl(q)[j] = e.below ? fmax(at - e.low, 0.5 * room) : 1;
        point_gu(q)[j] = e.above ? fmax(e.high - at, 0.5 * room) : 1;
        point_zl(q)[j] = e.below ? fmax(gradient, 0.0) + price : 0;
        point_zu(q)[j] = e.above ? fmax(-gradient, 0.0) + price : 0;
    }
    ROWS { point_s(q)[i] = 0; prices(q)[i] = Y[i]; }
    SYNC();
    row_dots(point_w(q), [&](int i, double v) { if (p.inequality[i]) point_s(q)[i] = fmax(q.side(i) - v, 0.1 * width); });
    SYNC();
}

// From the point at hand. → the steps taken; −1: not converged; PROVEN: there is no feasible point.
NOINLINE int interior_point(int limit, double tolerance) {
    const Task q = *TASK;
    const double mu = q.mu;
    double *y = Y, *x = X, *s = point_s(q);
    double v[4] = {0, 0, 0, 0};
    COLUMNS {
        Ends e(q, j);
        v[0] += (double)e.below + (double)e.above;
        step_w(q)[j] = target_l(q)[j] = target_u(q)[j] = inverse_l(q)[j] = inverse_u(q)[j] = 0;
    }
    ROWS { y[i] = prices(q)[i]; v[0] += p.inequality[i] ? 1 : 0; }
    reduce<1, 3>(v);
    const double count = fmax(v[0], 1.0);
    double length = 0;
    int result = -1;
    UNROLL(1) for (int step = 0; step <= limit; step++) {
        // Take the step found last; residuals; Θ⁻¹; the predictor's right-hand side.
        double t[5] = {0, 0, 1, 0, 0};  // gap, slope, decision, row, price
        COLUMNS {
            Ends e(q, j);
            double d = step_w(q)[j], zl = point_zl(q)[j], zu = point_zu(q)[j], move = length * d, at = point_w(q)[j] + move;
            zl += length * (target_l(q)[j] - zl * d) * inverse_l(q)[j];
            zu += length * (target_u(q)[j] + zu * d) * inverse_u(q)[j];
            double gl = point_gl(q)[j] + (e.below ? move : 0), gu = point_gu(q)[j] - (e.above ? move : 0);
            point_w(q)[j] = at; point_gl(q)[j] = gl; point_gu(q)[j] = gu; point_zl(q)[j] = zl; point_zu(q)[j] = zu;
            double gradient = (e.free ? q.cost(j) + mu * at + column_dot(j, y) : 0.0) - zl + zu;
            t[1] = fmax(t[1], fabs(gradient));
            t[2] = fmax(t[2], fabs(at));
            t[0] += gl * zl + gu * zu;
            double il = 1 / gl, iu = 1 / gu, inverse = e.free ? 1 / (mu + zl * il + zu * iu) : 0;
            slope(q)[j] = gradient; inverse_l(q)[j] = il; inverse_u(q)[j] = iu; theta(q)[j] = inverse;
            right(q)[j] = inverse * (zu - zl - gradient);
        }
        SYNC();
        row_dots(point_w(q), [&](int i, double activity) {
            double left = q.side(i) - s[i] - activity;
            missing(q)[i] = left;
            t[3] = fmax(t[3], fabs(left));
            t[4] = fmax(t[4], fabs(y[i]));
            t[0] += s[i] * y[i];
        });
        reduce<1, 4>(t);
        double gap = t[0], residual = fmax(t[3] / t[2], t[1] / fmax(t[4], 1.0));
        if (residual <= fmax(tolerance, FEASIBLE) && gap / count <= tolerance) { result = step; break; }
        if (!(gap <= LARGEST)) break;
        if (t[4] > MANY && (step % PROVE == 0 || step == limit) && no_feasible_point()) { result = PROVEN; break; }
        if (step == limit) break;

        ROWS ratio(q)[i] = p.inequality[i] ? s[i] / y[i] : 0.0;
        SYNC();
        assemble(theta(q), REGULARIZATION, ratio(q), 0, 0);
        factorize(0, 0);
        // Predictor: straight to complementarity zero.
        row_dots(right(q), [&](int i, double sum) { x[i] = sum - missing(q)[i] - (p.inequality[i] ? s[i] : 0.0); });
        SYNC();
        solve_system(theta(q), ratio(q), step >= REFINED ? REFINEMENTS : 0);
        double worst = 1;
        COLUMNS {
            Ends e(q, j);
            double move = right(q)[j] - theta(q)[j] * column_dot(j, x);
            step_w(q)[j] = move;
            double dl = e.below ? move * inverse_l(q)[j] : 0, du = e.above ? move * inverse_u(q)[j] : 0;
            worst = fmax(worst, fmax(fmax(-dl, 1 + dl), fmax(du, 1 - du)));
        }
        ROWS if (p.inequality[i]) {
            double ds = -s[i] - s[i] * x[i] / y[i];
            step_s(q)[i] = ds;
            worst = fmax(worst, fmax(-ds / s[i], -x[i] / y[i]));
        }
        length = 1 / largest_of(worst);
        double remaining[1] = {0};
        COLUMNS {
            double move = step_w(q)[j];
            remaining[0] += (point_gl(q)[j] + length * move) * point_zl(q)[j] * (1 - length * (1 + move * inverse_l(q)[j]));
            remaining[0] += (point_gu(q)[j] - length * move) * point_zu(q)[j] * (1 - length * (1 - move * inverse_u(q)[j]));
        }
        ROWS if (p.inequality[i]) remaining[0] += (s[i] + length * step_s(q)[i]) * (y[i] + length * x[i]);
        reduce<1, 0>(remaining);
        // Corrector: to a share of the gap that depends on how far the predictor got, with its second-order terms.
        double share = gap > 0 ? fmax(remaining[0], 0.0) / gap : 0, aim = share * share * share * gap / count;
        COLUMNS {
            Ends e(q, j);
            double move = step_w(q)[j], zl = point_zl(q)[j], zu = point_zu(q)[j], il = inverse_l(q)[j], iu = inverse_u(q)[j];
            double tl = (e.below ? aim : 0) + move * zl * (1 + move * il) - point_gl(q)[j] * zl;
            double tu = (e.above ? aim : 0) - move * zu * (1 - move * iu) - point_gu(q)[j] * zu;
            target_l(q)[j] = tl; target_u(q)[j] = tu;
            right(q)[j] = theta(q)[j] * (tl * il - tu * iu - slope(q)[j]);
        }
        ROWS if (p.inequality[i]) target_s(q)[i] = aim - step_s(q)[i] * x[i] - s[i] * y[i];
        SYNC();
        row_dots(right(q), [&](int i, double sum) {
            x[i] = sum - missing(q)[i] + (p.inequality[i] ? target_s(q)[i] / y[i] : 0.0);
        });
        SYNC();
        solve_system(theta(q), ratio(q), step >= REFINED ? REFINEMENTS : 0);
        worst = 1;
        COLUMNS {
            Ends e(q, j);
            double move = right(q)[j] - theta(q)[j] * column_dot(j, x);
            double zl = point_zl(q)[j], zu = point_zu(q)[j], il = inverse_l(q)[j], iu = inverse_u(q)[j];
            step_w(q)[j] = move;
            double dl = e.below ? move * il : 0, du = e.above ? move * iu : 0;
            worst = fmax(worst, fmax(-dl, du));
            if (zl > 0) worst = fmax(worst, (zl * move - target_l(q)[j]) * il / zl);
            if (zu > 0) worst = fmax(worst, (-zu * move - target_u(q)[j]) * iu / zu);
        }
        ROWS if (p.inequality[i]) {
            double ds = (target_s(q)[i] - s[i] * x[i]) / y[i];
            step_s(q)[i] = ds;
            worst = fmax(worst, fmax(-ds / s[i], -x[i] / y[i]));
        }
        // A quadratic objective ties primal and dual: one length for both.
        length = fmin(TOWARDS_BOUNDARY / largest_of(worst), 1.0);
        ROWS {
            y[i] += length * x[i];
            if (p.inequality[i]) s[i] += length * step_s(q)[i];
        }
        SYNC();
    }
    SYNC();
    ROWS prices(q)[i] = y[i];
    SYNC();
    return result;
}
