// A block of threads and what it works on: its plan, its fast memory, sums over columns, rows and threads.
//
// One block solves one instance. -DPARTS=2: see `Sum`; -DSPILL: part of the factor lies in global memory; others: see threads.cuh.
#pragma once

#include "threads.cuh"

#ifdef EMULATE
#include <map>
#include <memory>
#include <mutex>
struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
static double inverse_root(double x) { return 1 / std::sqrt(x); }
static double inverse_of(double x) { return 1 / x; }
#define ALL (W < 32 ? (1u << W % 32) - 1 : 0xffffffffu)
static double exchanged[NT];
static int leading_zeros(int x) { return __builtin_clz(x); }
static void meet(unsigned group = ALL) {  // the lanes of a warp that are in the group
    if (W == 1) return;
    static std::mutex one_at_a_time;
    static std::map<std::pair<int, unsigned>, std::unique_ptr<std::barrier<>>> known;
    std::barrier<>* found;
    {
        std::lock_guard<std::mutex> lock(one_at_a_time);
        auto& own = known[{WARP, group}];
        if (!own) own = std::make_unique<std::barrier<>>(__builtin_popcount(group));
        found = own.get();
    }
    found->arrive_and_wait();
}
static double from_thread(double x, int number, unsigned group) {
    exchanged[TID] = x;
    meet(group);
    double other = exchanged[number];
    meet(group);
    return other;
}
static double shuffle(double x, int from, int lanes, unsigned group = ALL) {
    return from_thread(x, TID / lanes * lanes + from % lanes, group);
}
static double shuffle_xor(double x, int lanes, unsigned group = ALL) { return from_thread(x, TID ^ lanes, group); }
static double plain_sum(double x, double y) { return x + y; }
static int most_of_warp(int x) {
    double most = x;
    for (int o = W / 2; o; o >>= 1) most = fmax(most, shuffle_xor(most, o));
    return (int)most;
}
#else
#define ALL 0xffffffffu
// 1/√x and 1/x of finite x > 0 that are not tiny, to an ulp or two: CUDA's, which round right and know of every x, take several
// times the code.
DEVICE double inverse_root(double x) {
    double y;
    asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
    const double e = fma(-x * y, y, 1.0);
    return fma(y * e, fma(e, 0.375, 0.5), y);
}
DEVICE double inverse_of(double x) {
    double y;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
    y = fma(y, fma(-x, y, 1.0), y);
    return fma(y, fma(-x, y, 1.0), y);
}
DEVICE int leading_zeros(int x) { return __clz(x); }
DEVICE double plain_sum(double x, double y) { return __dadd_rn(x, y); }  // never one operation with a product
DEVICE void meet(unsigned group = ALL) { __syncwarp(group); }
DEVICE double shuffle(double x, int from, int lanes, unsigned group = ALL) { return __shfl_sync(group, x, from, lanes); }
DEVICE double shuffle_xor(double x, int lanes, unsigned group = ALL) { return __shfl_xor_sync(group, x, lanes); }
DEVICE int most_of_warp(int x) {
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(ALL, x);
#else
    for (int o = 16; o; o >>= 1) x = max(x, __shfl_xor_sync(ALL, x, o));
    return x;
#endif
}
#endif

#ifndef PARTS
#define PARTS 1
#endif
// For each column j (row i) of this thread, v leads to its scratch.
#define COLUMNS UNROLL(1) for (int j = TID; j < p.n; j += NT) if (double* v = column(scratch, j); true)
#define ROWS UNROLL(1) for (int i = TID; i < p.m; i += NT) if (double* v = row(scratch, i); true)
#define LARGEST 1.7976931348623157e308  // what is larger in size is a missing bound, or no number
#define INFINITE (1e300 * 1e300)

struct Plan {  // dflearn.engine.cuda.plan: SIZES, then FIELDS
    int n, m, levels, panel, any_inequality, row_slices, pair_slices, per_column, nodes, rows_below, near_shape, head_at,
        levels_at, panel_at, far, unused;
    const int *inequality; const int4* row_slice; const int *row_task, *row_index; const double* row_value;
    const int *column_start, *column_index; const double* column_value;
    const int4* pair_slice; const int *pair_target, *pair_i, *pair_j, *pair_index; const double* pair_value;
    const int4* update_slice; const int* update_task; const int2* update_word;
    const int4* pull_slice; const int* pull_task; const int2* pull_word;
    const int4 *level, *node;  // level: updates from, to, pulls from, to; supernodes from, to, lanes in factorize (and 256 times rows of each with those below), in substitute
    const unsigned short* below;
    const int *below_level, *below_owner;  // where the rows below of each level begin; whose each of them is
};

#ifdef EMULATE
static Plan p;
static double* fast;
extern "C" void prepare(const Plan* plan, double* memory) { p = *plan; fast = memory; }
#else
__constant__ Plan p;  // one module, one plan
extern __shared__ double fast[];  // x (m), y (m), a buffer, the task, levels, supernodes and rows below; the panel
#endif

DEVICE double larger(double x, double y) { return y > x ? y : x; }  // x where y is no number

struct Task {  // the instance at hand, and where its answer goes
    const double *r, *lower, *upper;
    double *scratch, *far, *w, *y;
    unsigned char *inside, *in_force;
    double mu, sigma, gamma, per_sigma, per_gamma;
    int number;

    // in its own units (see solve.cuh)
    MEMBER double side(int i) const { return r[i] * per_sigma; }
    MEMBER double low(int j) const { return lower[j] * per_sigma; }
    MEMBER double high(int j) const { return upper[j] * per_sigma; }
};

static_assert(sizeof(Task) <= 18 * sizeof(double), "plan.py: HEAD");

#define X fast  // (m)
#define Y (fast + p.m)  // (m)
#define BUFFER (fast + 2 * p.m)
#define TASK ((Task*)(fast + p.head_at))
#define LEVELS ((int4*)(fast + p.levels_at))
#define NODES (LEVELS + 2 * p.levels)
#define BELOW ((unsigned short*)(NODES + p.nodes))

// Scratch of a block in global memory (in fast memory it was no faster): COLUMN_ARRAYS numbers of each column, then ROW_ARRAYS of each row, those of a warp's neighbours side by
// side, so that one address and constants lead to all of them. row_index and pair_index count so too.
#define COLUMN_ARRAYS 15
#define ROW_ARRAYS 8
#define GROUPS(count) (((count) + W - 1) / W)
DEVICE double* column(double* scratch, int j) { return scratch + j / W * (COLUMN_ARRAYS * W) + j % W; }
DEVICE double* row(double* scratch, int i) {
    return scratch + GROUPS(p.n) * (COLUMN_ARRAYS * W) + i / W * (ROW_ARRAYS * W) + i % W;
}
enum Columns {
    // An interior point: w, its gaps (0: no bound; −1: a fixed variable) and their multipliers. They outlive the other methods.
    POINT_W = 0 * W, GAP_L = 1 * W, GAP_U = 2 * W, PRICE_L = 3 * W, PRICE_U = 4 * W,
    // What its steps are computed from.
    THETA = 5 * W, RIGHT = 6 * W, STEP_W = 7 * W, SLOPE = 8 * W, INVERSE_L = 9 * W, INVERSE_U = 10 * W, TARGET_L = 11 * W,
    TARGET_U = 12 * W, IMAGE = 13 * W,
    // Of Newton's method, of the corrections on a face, of `measure` and of `no_feasible_point`.
    NEWTON_INSIDE = THETA, NEWTON_W = RIGHT, FACE_INSIDE = THETA, FACE_W = RIGHT, FACE_SLOPE = SLOPE, SIZE = STEP_W, LOOSE = STEP_W,
    NOISE = STEP_W,  // of a projection
    COST = 14 * W
};
enum Rows {
    POINT_S = 0 * W, PRICE = 1 * W,  // slacks and multipliers of the interior point
    MISSING = 2 * W, TARGET_S = 3 * W, STEP_S = 4 * W, RATIO = 5 * W, WANTED = 6 * W, FOUND = 7 * W,
    GRADIENT = 2 * W, TRIAL_GRADIENT = 3 * W, STEP_Y = 4 * W, SHIFT = 6 * W, MASK = 7 * W,  // Newton's
    DIAGONAL = 5 * W, IN_FORCE = 7 * W  // a face's
};

// ---- sums ------------------------------------------------------------------------------------------------------------

// The first S numbers are added over `lanes` neighbours, the others' largest is taken.
template <int S, int M> DEVICE void over_lanes(double* v, int lanes) {
    UNROLL(1) for (int o = lanes >> 1; o; o >>= 1) {
        UNROLL(16) for (int k = 0; k < S + M; k++) {
            double other = shuffle_xor(v[k], o);
            v[k] = k < S ? v[k] + other : larger(v[k], other);
        }
    }
}

// A sum over the block. How it rounds does not depend on the number of threads: each stands for PARTS of them, that many threads
// further on, whose sums are kept apart.
struct Sum {
    double of[PARTS] = {};
    MEMBER void add(int turn, double x) {  // what this thread adds in its turn 0, 1, …
        UNROLL(PARTS) for (int q = 0; q < PARTS; q++) of[q] = plain_sum(of[q], turn % PARTS == q ? x : 0);
    }
    MEMBER operator double() const { return of[0]; }  // after `reduce`
};

// S sums and M maxima over the block; a barrier before and after.
template <int S, int M> DEVICE void reduce(Sum* sums, double* most) {
    static_assert(S + M <= 6, "the buffer holds six numbers of each warp");
    double v[S * PARTS + M];
    UNROLL(6) for (int k = 0; k < S * PARTS; k++) v[k] = sums[k / PARTS].of[k % PARTS];
    UNROLL(6) for (int k = 0; k < M; k++) v[S * PARTS + k] = most[k];
    over_lanes<S * PARTS, M>(v, W);
    UNROLL(6) for (int k = 0; k < S; k++) {  // parts: as further warps
        double* of = v + k * PARTS;
        UNROLL(3) for (int h = PARTS / 2; h; h /= 2) {
            UNROLL(PARTS) for (int q = 0; q < h; q++) of[q] = plain_sum(of[q], of[q + h]);
        }
        v[k] = of[0];
    }
    UNROLL(6) for (int k = 0; k < M; k++) v[S + k] = v[S * PARTS + k];
    if (LANE == 0) {
        UNROLL(6) for (int k = 0; k < S + M; k++) BUFFER[k * NW + WARP] = v[k];
    }
    SYNC();
#ifdef EMULATE  // there may be fewer lanes than warps
    for (int k = 0; k < S + M; k++) {
        double of[NW];
        for (int warp = 0; warp < NW; warp++) of[warp] = BUFFER[k * NW + warp];
        for (int h = NW / 2; h; h /= 2)
            for (int warp = 0; warp < h; warp++) of[warp] = k < S ? of[warp] + of[warp + h] : fmax(of[warp], of[warp + h]);
        v[k] = of[0];
    }
#else
    UNROLL(6) for (int k = 0; k < S + M; k++) v[k] = BUFFER[k * NW + (LANE & (NW - 1))];
    over_lanes<S, M>(v, NW);
#endif
    UNROLL(6) for (int k = 0; k < S; k++) sums[k].of[0] = v[k];
    UNROLL(6) for (int k = 0; k < M; k++) most[k] = v[S + k];
    SYNC();
}

DEVICE double largest_of(double x) {
    reduce<0, 1>(nullptr, &x);
    return x;
}

// term(value, row) for every entry of column j of M
template <class F> DEVICE void column_terms(int j, F term) {
    int k, end;
    if (p.per_column) { k = j / W * W * p.per_column + j % W; end = k + W * p.per_column; }
    else { k = p.column_start[j / W] + j % W; end = p.column_start[j / W + 1]; }
    UNROLL(2) for (; k < end; k += W) term(p.column_value[k], p.column_index[k]);
}

// (Mᵀy)_j
DEVICE double column_dot(int j, const double* y) {
    double total = 0;
    column_terms(j, [&](double value, int i) { total += value * y[i]; });
    return total;
}

// For every row i: term(i, value, place of the column, totals) for each of its entries; done(i, totals, turn), S sums and M maxima, once.
// Entries of value zero may be among them.
template <int S, int M, int U, class T, class F> DEVICE void row_totals(T term, F done) {
    UNROLL(1) for (int s = WARP; s < p.row_slices; s += NW) {
        int4 slice = p.row_slice[s];
        int row = p.row_task[s * W + LANE];
        double totals[S + M] = {};
        UNROLL(U) for (int k = slice.x + LANE; k < slice.y; k += W) term(row, p.row_value[k], p.row_index[k], totals);
        over_lanes<S, M>(totals, slice.z);
        if (!(LANE & (slice.z - 1)) && row >= 0) done(row, totals, s / NW);
    }
}

// done(i, (M x)_i, turn) for every row, x a field of columns in the scratch
template <class F> DEVICE void row_dots(const double* x, F done) {
    row_totals<1, 0, 4>([&](int, double value, int at, double* total) { total[0] += value * x[at]; },
                     [&](int i, const double* total, int turn) { done(i, total[0], turn); });
}
