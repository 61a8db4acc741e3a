// The smoothed LP of every instance of a batch, and projections onto the faces of their solutions. Blocks take the next
// instance that nobody has taken; without a counter there is a block for each.
#include "solve.cuh"

#define ACCEPTED 1e-6  // what OPTIMAL means
#define VANISHING_PIVOT 1e-11
#define OFF 1e-10  // a row that a projection breaks by more than this, beside its terms
#define ROUNDED 4e-12  // what is noise, beside what was taken off v last, and first
#define TWICE_ROUNDED 1e-15
#define OPTIMAL 0
#define INFEASIBLE 2
#define FAILED 5

DEVICE int next(int* counter, int last) {
    SYNC();
    if (TID == 0) {
        if (!counter) TASK->number = last < 0 ? BLOCK : 0x7fffffff;
#ifdef EMULATE
        else TASK->number = (*counter)++;
#else
        else TASK->number = atomicAdd(counter, 1);
#endif
    }
    SYNC();
    return TASK->number;
}

DEVICE void begin(double* scratch, double* far) {
    if (TID == 0) {
        TASK->scratch = scratch + (long long)BLOCK * ((COLUMN_ARRAYS * GROUPS(p.n) + ROW_ARRAYS * GROUPS(p.m)) * W);
        TASK->far = far + (long long)BLOCK * p.far;
    }
    copy_shape();
    SYNC();
}

// A vector of costs or of a gradient, in single or double precision; c_j = slope_j x_source(j) + offset_j, or x_j where source is
// null; source(j) < 0: none. Every x is the source of one j.
struct Given {
    const void* x;
    const int* source;
    const double *slope, *offset;
    int single;
    MEMBER double at(long long k) const { return single ? ((const float*)x)[k] : ((const double*)x)[k]; }
    MEMBER double cost(long long first, int j) const {
        if (!source) return at(first + j);
        return (source[j] < 0 ? 0 : slope[j] * at(first + source[j])) + offset[j];
    }
};

// given: costs, `step` numbers of each instance. w (count, n), and once more in single precision, or null; face (count, n + m):
// which variables are inside, and which rows in force; y (count, m); mu, r, lower, upper: one line per instance, or one for all
// (step 0). starts (count, m): where multipliers are known, or null. y, r and starts in the plan's order and scale of rows. told
// (4, count): objective, bound, residual, steps. alarm: becomes 1 where an instance is not solved; in the host's memory.
KERNEL smoothed_solve(int count, int* counter, double* scratches, double* far, double tolerance, const void* costs, int single,
                      int step, const int* source, const double* slope, const double* offset, const double* mu, int mu_step,
                      const double* r, int r_step, const double* lower, int lower_step, const double* upper, int upper_step,
                      const double* starts, double* y, double* w, float* rounded, unsigned char* face, double* told,
                      signed char* status, int* alarm) {
    const Given given = {costs, source, slope, offset, single};
    begin(scratches, far);
    double* const scratch = TASK->scratch;
    UNROLL(1) for (int k = next(counter, -1); k < count; k = next(counter, k)) {
        const long long columns = (long long)k * p.n, rows = (long long)k * p.m;
        if (TID == 0) {
            Task* q = TASK;
            q->mu = mu[k * mu_step]; q->r = r + (long long)k * r_step;
            q->lower = lower + (long long)k * lower_step; q->upper = upper + (long long)k * upper_step;
            q->w = w + columns; q->y = y + rows; q->inside = face + columns + rows; q->in_force = face + columns + rows + p.n;
        }
        SYNC();
        double odd[2] = {0, 0};  // costs and starts that are no numbers; the former, as those of an instance that is not to be solved
        COLUMNS {
            v[COST] = given.cost((long long)k * step, j);
            if (!(fabs(v[COST]) <= LARGEST)) odd[0] = 1;
        }
        if (starts) { ROWS { (void)v; if (!(fabs(starts[rows + i]) <= LARGEST)) odd[1] = 1; } }
        reduce<0, 2>(nullptr, odd);
        to_units();
        const Task& q = *TASK;
        Outcome found = {INFINITE, -2, -2};
        if (odd[0] == 0) {
            bool warm = starts && odd[1] == 0;
            if (warm) { ROWS { (void)v; Y[i] = starts[rows + i] * q.per_gamma; } SYNC(); }
            found = solve_instance(warm, tolerance);
        }
        const bool solved = found.residual <= ACCEPTED;
        Sum value;
        COLUMNS {
            double at = solved ? q.w[j] : 0, cost = solved ? v[COST] : 0;
            if (!solved) {  // something finite that has no gradient
                at = fmin(fmax(0.0, q.low(j)), q.high(j));
                if (!(fabs(at) <= LARGEST)) at = 0;
                q.inside[j] = 0;
            }
            value.add(j / NT, at * (cost + 0.5 * q.mu * at));
            q.w[j] = q.sigma * at;
            if (rounded) rounded[columns + j] = (float)(q.sigma * at);
        }
        ROWS {
            (void)v;
            if (!solved) q.in_force[i] = 0;
            q.y[i] = solved ? q.gamma * q.y[i] : INFINITE - INFINITE;  // no number: no start
        }
        reduce<1, 0>(&value, nullptr);
        if (TID == 0) {
            told[k] = q.gamma * q.sigma * value;
            told[count + k] = solved ? told[k] : -INFINITE;
            told[2 * count + k] = found.residual;
            status[k] = solved ? OPTIMAL : found.interior == PROVEN ? INFEASIBLE : FAILED;
            if (!solved) *alarm = 1;
            int* steps = (int*)(told + 3 * count) + 2 * k;
            steps[0] = found.newton;
            steps[1] = found.interior == PROVEN ? -1 : found.interior;
        }
    }
}

// out = factor · P v, v the vectors, `step` numbers from one to the next, P the projection onto {x : x_j = 0 off the inside,
// (M x)_i = 0 on the rows in force}, in the precision of v; where there is a source, it is turned into `wide` costs for each
// instance, slope_j x_j for source(j). And the prices z = (M D Mᵀ)⁺ M D v (count, m), D the inside: P v = D (v − Mᵀz). Either may be null. off (count,): FAILED
// where P v is not on the face. As dflearn.engine.smoothed.tiles.project_tiles.
KERNEL smoothed_project(int count, int* counter, double* scratches, double* far, const unsigned char* inside, int inside_step,
                        const unsigned char* in_force, int in_force_step, const void* vectors, int single, int step,
                        const int* source, const double* slope, int wide, const double* factor, int factor_step, void* out,
                        double* prices, signed char* off, int* alarm) {
    const Given given = {vectors, nullptr, nullptr, nullptr, single};
    begin(scratches, far);
    double* const scratch = TASK->scratch;
    UNROLL(1) for (int k = next(counter, -1); k < count; k = next(counter, k)) {
        const unsigned char *in = inside + (long long)k * inside_step, *on = in_force + (long long)k * in_force_step;
        COLUMNS { v[THETA] = in[j]; v[IMAGE] = in[j] ? given.at((long long)k * step + j) : 0; v[NOISE] = 0; }
        ROWS { v[MASK] = on[i]; v[PRICE] = 0; }
        SYNC();
        assemble(THETA, 0, NONE, p.any_inequality ? MASK : NONE, DIAGONAL);
        factorize(VANISHING_PIVOT);
        for (int again = 0; again < 2; again++) {  // once more for what rounding of v left, which may be much larger than P v
            row_dots(scratch + IMAGE, [&](int i, double sum, int) { X[i] = row(scratch, i)[MASK] * sum; });
            SYNC();
            substitute();
            ROWS { X[i] *= v[MASK]; v[PRICE] += X[i]; }
            SYNC();
            COLUMNS {
                double taken = v[THETA] * column_dot(j, X);
                v[IMAGE] -= taken;
                v[NOISE] = again ? v[NOISE] + ROUNDED * fabs(taken) : TWICE_ROUNDED * fabs(taken);
            }
            SYNC();
        }
        double broken = 0;
        row_totals<3, 0, 2>(
            [&](int, double value, int at, double* sum) {
                double term = value * scratch[IMAGE + at];
                sum[0] += term;
                sum[1] += fabs(term);
                sum[2] += fabs(value * scratch[NOISE + at]);
            },
            [&](int i, const double* sum, int) {
                if (fabs(sum[0]) > OFF * sum[1] && fabs(sum[0]) > sum[2]) broken = larger(broken, row(scratch, i)[MASK]);
            });
        broken = largest_of(broken);
        if (TID == 0) {
            off[k] = broken > 0 ? FAILED : OPTIMAL;
            if (broken > 0) *alarm = 1;
        }
        if (out) {
            const double scale = factor[k * factor_step];
            COLUMNS {
                const int to = source ? source[j] : j;
                const double x = source ? slope[j] * scale * v[IMAGE] : scale * v[IMAGE];
                if (to < 0) continue;
                if (single) ((float*)out)[(long long)k * wide + to] = (float)x;
                else ((double*)out)[(long long)k * wide + to] = x;
            }
        }
        if (prices) { ROWS prices[(long long)k * p.m + i] = v[PRICE]; }
        SYNC();
    }
}
