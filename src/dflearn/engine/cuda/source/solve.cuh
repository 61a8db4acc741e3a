// One instance from its units to its answer: dflearn.engine.smoothed.tiles by one block.
//
// Every instance is solved in units of its own, σ for decisions and γ for costs, both powers of two:
//   w = σ v,   y = γ η,   c = γ c',   r, lower, upper = σ (r', lower', upper'),   μ' = μ σ/γ
#pragma once
#include "dual_newton.cuh"
#include "face.cuh"

#define FINISHED 10.0
#define ENOUGH 1e-7
#define CLOSE 1e-3
#define CLOSER 1e-4
#define CLOSEST 1e-6
#define NEAR 0.1
#define NEAR_PRICE 0.002
#define ATTEMPTS 2
#define POLISH_STEPS 20
#define PATIENCE 6
#define WARM_STEPS 10
#define RESTART_STEPS 25
#define INTERIOR_STEPS 80
#define INTERIOR_TOLERANCE 1e-8

struct Outcome { double residual; int newton, interior; };  // steps; interior PROVEN: there is no feasible point

DEVICE double power_of_two(double x, double otherwise) {  // the smallest from x on
    if (!(x > 0 && x <= LARGEST)) return otherwise;
    int exponent;
    double mantissa = frexp(x, &exponent);
    return ldexp(1.0, mantissa == 0.5 ? exponent - 1 : exponent);
}

// σ, γ, and μ in those units. The task's numbers are the user's until then.
NOINLINE void to_units() {
    const Task& q = *TASK;
    double* const scratch = q.scratch;
    const double mu = q.mu;
    double t[5] = {0, 0, 0, 0, 0};  // forced, cost, pull, bound, side
    COLUMNS {
        double low = q.lower[j], high = q.upper[j], cost = v[COST];
        t[0] = larger(t[0], fmax(low, -high));
        t[1] = larger(t[1], fabs(cost));
        t[2] = larger(t[2], fabs(fmin(fmax(-cost / mu, low), high)));
        low = fabs(low);
        high = fabs(high);
        if (low <= LARGEST) t[3] = larger(t[3], low);
        if (high <= LARGEST) t[3] = larger(t[3], high);
    }
    ROWS {
        (void)v;
        double size = fabs(q.r[i]);
        t[4] = larger(t[4], size);
        t[0] = larger(t[0], p.inequality[i] ? fmax(-q.r[i], 0.0) : size);
    }
    reduce<0, 5>(nullptr, t);
    double pull = t[4] > 0 ? fmin(t[2], t[4]) : t[2];
    double sigma = power_of_two(fmax(t[0], pull), power_of_two(fmax(t[4], t[3]), 1.0));
    double gamma = power_of_two(fmax(t[1], mu * sigma), 1.0);
    if (TID == 0) {
        TASK->mu = mu * sigma * (1 / gamma);
        TASK->sigma = sigma;
        TASK->gamma = gamma;
        TASK->per_sigma = 1 / sigma;
        TASK->per_gamma = 1 / gamma;
    }
    COLUMNS v[COST] *= 1 / gamma;
    SYNC();
}

// MASK: 1 for rows in force, and 0. A row with a price and some slack is in force if its price is the larger of the two,
// beside their terms: in other units one of them may look like nothing. After `measure`, whose SIZE it reads.
NOINLINE void rows_in_force() {
    const Task& q = *TASK;
    double* const scratch = q.scratch;
    const double* y = Y;
    double doubtful = 0;
    ROWS {
        v[MASK] = !p.inequality[i] || y[i] + v[GRADIENT] > 0 ? 1 : 0;
        if (p.inequality[i] && y[i] > 0 && -v[GRADIENT] > y[i]) doubtful = 1;
    }
    if (largest_of(doubtful) > 0)
        row_totals<1, 1, 1>(
            [&](int i, double value, int at, double* terms) {
                terms[0] += fabs(value * scratch[NEWTON_W + at]);
                if (i >= 0 && y[i] > 0) terms[1] = larger(terms[1], fabs(value * y[i]) / scratch[SIZE + at]);
            },
            [&](int i, const double* terms, int) {
                double slack = -row(scratch, i)[GRADIENT], total = terms[0] + fabs(q.side(i));
                if (p.inequality[i] && y[i] > 0 && terms[1] * total > slack) row(scratch, i)[MASK] = 1;
            });
    SYNC();
}

// Newton's method from the multipliers in Y, as long as that goes fast (or to polish); its answer is the answer.
DEVICE Outcome newton(int limit, int patience, double tolerance) {
    int steps = dual_newton(limit, patience, tolerance);
    double residual = measure(NEWTON_W);
    rows_in_force();
    keep(NEWTON_W, NEWTON_INSIDE, MASK);
    return {residual, steps, -1};
}

// Interior points from nothing or (near) from the multipliers in Y, to the solution's face, which Newton's method confirms;
// again from closer by where it is not found.
NOINLINE Outcome interior(bool near, double tolerance) {
    double* const scratch = TASK->scratch;
    const double finished = FINISHED * tolerance;
    const int limit = near ? RESTART_STEPS : INTERIOR_STEPS;
    if (near) interior_start(true, NEAR, NEAR_PRICE);
    else interior_start(false, 1.0, 0.1);
    double residual = INFINITE;
    int steps = interior_point(limit, INTERIOR_TOLERANCE);
    if (steps == PROVEN) return {INFINITE, -1, PROVEN};
    residual = finish_on_face(tolerance, residual);
    if (steps >= 0 && !(residual <= finished)) {
        if (interior_point(limit, INTERIOR_TOLERANCE * CLOSE) == PROVEN) return {INFINITE, -1, PROVEN};
        residual = finish_on_face(tolerance, residual);
    }
    ROWS Y[i] = residual <= ENOUGH ? TASK->y[i] : v[PRICE];
    SYNC();
    Outcome last = newton(POLISH_STEPS, PATIENCE, tolerance);
    last.interior = steps;
    UNROLL(1) for (int attempt = 0; attempt <= ATTEMPTS; attempt++) {
        if (last.residual <= finished || (attempt > 1 && last.residual <= ENOUGH)) break;
        if (attempt > 0) {
            if (last.interior < 0) break;  // it came to an end of its steps and gets no more of them
            last.interior = interior_point(limit, INTERIOR_TOLERANCE * CLOSER * (attempt == 2 ? CLOSEST : 1.0));
            if (last.interior == PROVEN) return {INFINITE, -1, PROVEN};
        }
        last.residual = finish_on_face(tolerance, last.residual);
    }
    return last;
}

// From the multipliers in Y where they are given (warm), by the quickest way that leads to the end.
DEVICE Outcome solve_instance(bool warm, double tolerance) {
    Outcome found = {0, -1, -1};
    double* const scratch = TASK->scratch;
    if (warm) {
        found = newton(WARM_STEPS, 1, tolerance);
        found.interior = -2;
        if (found.residual <= FINISHED * tolerance && found.newton >= 0) return found;
        double bad = 0;
        ROWS { (void)v; if (!(fabs(Y[i]) <= LARGEST)) bad = 1; }
        if (largest_of(bad) == 0) {
            found = interior(true, tolerance);
            if (found.residual <= FINISHED * tolerance) return found;
        }
    }
    return interior(false, tolerance);
}
