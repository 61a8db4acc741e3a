// A block of threads and what it works on: its plan, its fast memory, sums over columns, rows and threads.
//
// One block solves one instance. -DNT=256: threads of a block; -DMIN_BLOCKS=3: blocks that a multiprocessor is to hold;
// -DSPILL: part of the factor lies in global memory. -DEMULATE: plain C++ for tests without a GPU, in which a thread is a warp
// of one lane: one thread, or -DNT=4 of them that each call the kernel after `enter`.
#pragma once

#ifdef EMULATE
#include <barrier>
#include <cmath>
#define W 1
#ifndef NT
#define NT 1
#endif
static thread_local int thread_number;
static std::barrier<> threads_meet(NT);
#define DEVICE static inline
#define NOINLINE static
#define MEMBER
#define KERNEL extern "C" void
#define SYNC() threads_meet.arrive_and_wait()
#define TID thread_number
#define LANE 0
#define WARP thread_number
#define BLOCK 0
#define UNROLL(count)
struct int2 { int x, y; };
struct int4 { int x, y, z, w; };
using std::fabs; using std::fmax; using std::fmin; using std::frexp; using std::ldexp;
static double rsqrt(double x) { return 1 / std::sqrt(x); }
static double shuffle_xor(double x, int) { return x; }
extern "C" void enter(int number) { thread_number = number; }
#else
#define W 32
#ifndef NT
#define NT 256
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1
#endif
#define DEVICE __device__ __forceinline__
#define NOINLINE __device__ __noinline__
#define MEMBER __device__ __forceinline__
#define KERNEL extern "C" __global__ void __launch_bounds__(NT, MIN_BLOCKS)
#define SYNC() __syncthreads()
#define TID ((int)threadIdx.x)
#define LANE (TID & 31)
#define WARP (TID >> 5)
#define BLOCK ((int)blockIdx.x)
#define PRAGMA(text) _Pragma(#text)
#define UNROLL(count) PRAGMA(unroll count)
DEVICE double shuffle_xor(double x, int lanes) { return __shfl_xor_sync(0xffffffffu, x, lanes); }
#endif

#define NW (NT / W)
// For each column j (row i) of this thread, v leads to its scratch.
#define COLUMNS UNROLL(1) for (int j = TID; j < p.n; j += NT) if (double* v = column(scratch, j); true)
#define ROWS UNROLL(1) for (int i = TID; i < p.m; i += NT) if (double* v = row(scratch, i); true)
#define LARGEST 1.7976931348623157e308  // what is larger in size is a missing bound, or no number
#define INFINITE (1e300 * 1e300)

struct Plan {  // dflearn.cuda.plan: SIZES, then FIELDS
    int n, m, levels, panel, any_inequality, row_slices, pair_slices, per_column, nodes, rows_below, near_shape, head_at,
        levels_at, panel_at, far, unused;
    const int *inequality; const int4* row_slice; const int *row_task, *row_index; const double* row_value;
    const int *column_start, *column_index; const double* column_value;
    const int4* pair_slice; const int *pair_target, *pair_i, *pair_j, *pair_index; const double* pair_value;
    const int4* update_slice; const int* update_task; const int2* update_word;
    const int4* pull_slice; const int* pull_task; const int2* pull_word;
    const int4 *level, *node;  // level: updates from, to, pulls from, to; supernodes from, to, lanes in factorize, in substitute
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

struct Task {  // the instance at hand, and where its answer goes
    const double *c, *r, *lower, *upper;
    double *scratch, *far, *w, *y;
    unsigned char *inside, *in_force;
    double mu, least, sigma, gamma, per_sigma, per_gamma;
    int number;

    // in its own units (see solve.cuh)
    MEMBER double cost(int j) const { return c[j] * per_gamma; }
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
#define COLUMN_ARRAYS 14
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
    NOISE = STEP_W  // of a projection
};
enum Rows {
    POINT_S = 0 * W, PRICE = 1 * W,  // slacks and multipliers of the interior point
    MISSING = 2 * W, TARGET_S = 3 * W, STEP_S = 4 * W, RATIO = 5 * W, WANTED = 6 * W, FOUND = 7 * W,
    GRADIENT = 2 * W, TRIAL_GRADIENT = 3 * W, STEP_Y = 4 * W, SHIFT = 6 * W, MASK = 7 * W,  // Newton's
    DIAGONAL = 5 * W, IN_FORCE = 7 * W  // a face's
};

// ---- sums ------------------------------------------------------------------------------------------------------------

// The first S numbers are added over `lanes` neighbours, the others' largest is taken.
template <int S, int M> DEVICE void over_lanes(double (&v)[S + M], int lanes) {
    UNROLL(1) for (int o = lanes >> 1; o; o >>= 1) {
        UNROLL(6) for (int k = 0; k < S + M; k++) {
            double other = shuffle_xor(v[k], o);
            v[k] = k < S ? v[k] + other : fmax(v[k], other);
        }
    }
}

// The same over the block; a barrier before and after.
template <int S, int M> DEVICE void reduce(double (&v)[S + M]) {
    static_assert(S + M <= 6, "the buffer holds six numbers of each warp");
    over_lanes<S, M>(v, W);
    if (LANE == 0) {
        UNROLL(6) for (int k = 0; k < S + M; k++) BUFFER[k * NW + WARP] = v[k];
    }
    SYNC();
#ifdef EMULATE
    for (int k = 0; k < S + M; k++) {
        v[k] = BUFFER[k * NW];
        for (int warp = 1; warp < NW; warp++) v[k] = k < S ? v[k] + BUFFER[k * NW + warp] : fmax(v[k], BUFFER[k * NW + warp]);
    }
#else
    UNROLL(6) for (int k = 0; k < S + M; k++) v[k] = BUFFER[k * NW + LANE % NW];
    over_lanes<S, M>(v, NW);
#endif
    SYNC();
}

DEVICE double largest_of(double x) {
    double v[1] = {x};
    reduce<0, 1>(v);
    return v[0];
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

// For every row i: term(i, value, place of the column, totals) for each of its entries; done(i, totals), S sums and M maxima, once.
// Entries of value zero may be among them.
template <int S, int M, int U, class T, class F> DEVICE void row_totals(T term, F done) {
    UNROLL(1) for (int s = WARP; s < p.row_slices; s += NW) {
        int4 slice = p.row_slice[s];
        int row = p.row_task[s * W + LANE];
        double totals[S + M] = {};
        UNROLL(U) for (int k = slice.x + LANE; k < slice.y; k += W) term(row, p.row_value[k], p.row_index[k], totals);
        over_lanes<S, M>(totals, slice.z);
        if (LANE % slice.z == 0 && row >= 0) done(row, totals);
    }
}

// done(i, (M x)_i) for every row, x a field of columns in the scratch
template <class F> DEVICE void row_dots(const double* x, F done) {
    row_totals<1, 0, 4>([&](int, double value, int at, double* total) { total[0] += value * x[at]; },
                     [&](int i, const double* total) { done(i, total[0]); });
}
