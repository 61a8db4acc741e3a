// Davis-Yin iterations of every instance of a batch, all of them in one launch, and the way back: dflearn.engine.davis_yin.iterations.
//
// One block iterates one instance. A thread keeps EACH columns in its registers, with their entries of M where there are at most
// ENTRIES (0: they are read again and again). What all instances share, the rows M and (M Mᵀ)⁻¹, dense, is small enough for the caches:
// programs of few rows. With FEW > 0 there are so many rows, and registers hold all of it: one barrier an iteration. Otherwise v lies
// in fast memory; TASK_LANES and ROW_LANES threads sum a piece of a row of M, and a row of (M Mᵀ)⁻¹. -DREAL=float or double.
#include "threads.cuh"

#ifdef EMULATE
template <class T> DEVICE T shuffle_xor(T x, int) { return x; }  // of warps of one lane
#else
template <class T> DEVICE T shuffle_xor(T x, int lanes) { return __shfl_xor_sync(0xffffffffu, x, lanes); }
#endif

#define STEP 0.3
#define CURVED_STEP 1.5
#define LARGEST 1.7976931348623157e308
#define MOST_SUMS 3
#define COLUMNS(count) UNROLL(1) for (int j = TID; j < (count); j += NT)
#define MINE UNROLL(EACH) for (int k = 0, j = TID; k < EACH; k++, j += NT)  // the columns of this thread; j may be past the last

#ifdef EMULATE
static double* fast;
extern "C" void prepare(double* memory) { fast = memory; }
#else
extern __shared__ double fast[];  // sums of warps; x (m); pieces, or sums of FEW rows twice; v (N), unless FEW
#endif

// Rows of M, each cut into pieces of entries; the same by columns; the inverse (m, pieces): (M Mᵀ)⁻¹, its columns once for each piece.
struct Rows {
    int n, N, m, pieces;
    const int *piece_start, *entry_column; const REAL* entry_value; const int* row_piece;
    const REAL* inverse;
    const int *column_start, *column_row; const REAL* column_value;

    MEMBER REAL* x() const { return (REAL*)(fast + MOST_SUMS * NW); }
    MEMBER REAL* sums() const { return x() + m; }
    MEMBER REAL* v() const { return sums() + pieces; }
};

#define ROWS_GIVEN                                                                                                             \
    int count, int n, int N, int m, int pieces, const int *piece_start, const int *entry_column, const REAL *entry_value,      \
        const int *row_piece, const REAL *inverse, const int *column_start, const int *column_row, const REAL *column_value
#define ROWS_TAKEN                                                                                                             \
    { n, N, m, pieces, piece_start, entry_column, entry_value, row_piece, inverse, column_start, column_row, column_value }

template <int lanes> DEVICE REAL over_lanes(REAL x) {
    UNROLL(5) for (int o = lanes / 2; o; o /= 2) x += shuffle_xor(x, o);
    return x;
}

// The first S numbers are added over the block, of the others the largest is taken; a barrier before and after.
template <int S, int M> DEVICE void reduce(double (&v)[S + M]) {
    static_assert(S + M <= MOST_SUMS, "the buffer holds so many numbers of each warp");
    UNROLL(5) for (int o = W / 2; o; o /= 2) {
        UNROLL(4) for (int k = 0; k < S + M; k++) {
            double other = shuffle_xor(v[k], o);
            v[k] = k < S ? v[k] + other : fmax(v[k], other);
        }
    }
    if (LANE == 0) {
        UNROLL(4) for (int k = 0; k < S + M; k++) fast[k * NW + WARP] = v[k];
    }
    SYNC();
    UNROLL(4) for (int k = 0; k < S + M; k++) {
        v[k] = fast[k * NW];
        UNROLL(1) for (int warp = 1; warp < NW; warp++) v[k] = k < S ? v[k] + fast[k * NW + warp] : fmax(v[k], fast[k * NW + warp]);
    }
    SYNC();
}

// The entries of this thread's columns; what is past the last column has none.
struct Entries {
#if FEW
    REAL value[EACH][FEW], inverse[FEW][FEW];
#elif ENTRIES
    REAL value[EACH][ENTRIES];
    int row[EACH][ENTRIES];
#endif

    MEMBER void read(const Rows& q) {
        (void)q;
#if FEW
        MINE {
            UNROLL(FEW) for (int i = 0; i < FEW; i++) {
                value[k][i] = 0;
                if (j < q.N) {
                    UNROLL(1) for (int e = q.column_start[j]; e < q.column_start[j + 1]; e++) {
                        if (q.column_row[e] == i) value[k][i] = q.column_value[e];
                    }
                }
            }
        }
        UNROLL(FEW) for (int i = 0; i < FEW; i++) {
            UNROLL(FEW) for (int k = 0; k < FEW; k++) inverse[i][k] = q.inverse[i * q.pieces + q.row_piece[k]];
        }
#elif ENTRIES
        MINE {
            const int start = j < q.N ? q.column_start[j] : 0, end = j < q.N ? q.column_start[j + 1] : 0;
            UNROLL(ENTRIES) for (int e = 0; e < ENTRIES; e++) {
                const bool some = start + e < end;
                value[k][e] = some ? q.column_value[start + e] : (REAL)0;
                row[k][e] = some ? q.column_row[start + e] : 0;
            }
        }
#endif
    }

    // total − (column j of M) · x, the k-th of this thread
    MEMBER REAL less(const Rows& q, REAL total, int k, int j, const REAL* x) const {
        (void)q, (void)j, (void)k;
#if FEW
        UNROLL(FEW) for (int i = 0; i < FEW; i++) total -= value[k][i] * x[i];
#elif ENTRIES
        UNROLL(ENTRIES) for (int e = 0; e < ENTRIES; e++) total -= value[k][e] * x[row[k][e]];
#else
        if (j < q.N) {
            const int end = q.column_start[j + 1];
            UNROLL(2) for (int e = q.column_start[j]; e < end; e++) total -= q.column_value[e] * x[q.column_row[e]];
        }
#endif
        return total;
    }

    // x = (M Mᵀ)⁻¹ M v − shift, which may be null, for v in registers. `turn` goes from call to call. → where x is
    MEMBER const REAL* multipliers(const Rows& q, const REAL (&v)[EACH], const REAL* shift, int& turn, REAL (&own)[FEW ? FEW : 1]) const {
#if FEW
        REAL* const sums = q.sums() + turn * (NW * FEW);  // by turns: nobody writes what another may still read
        turn ^= 1;
        REAL part[FEW];
        UNROLL(FEW) for (int i = 0; i < FEW; i++) {
            part[i] = 0;
            UNROLL(EACH) for (int k = 0; k < EACH; k++) part[i] += value[k][i] * v[k];
        }
        UNROLL(5) for (int o = W / 2; o; o /= 2) {
            UNROLL(FEW) for (int i = 0; i < FEW; i++) part[i] += shuffle_xor(part[i], o);
        }
        if (LANE == 0) {
            UNROLL(FEW) for (int i = 0; i < FEW; i++) sums[WARP * FEW + i] = part[i];
        }
        SYNC();
        UNROLL(FEW) for (int i = 0; i < FEW; i++) {
            part[i] = 0;
            UNROLL(4) for (int warp = 0; warp < NW; warp++) part[i] += sums[warp * FEW + i];
        }
        UNROLL(FEW) for (int i = 0; i < FEW; i++) {
            own[i] = shift ? -shift[i] : (REAL)0;
            UNROLL(FEW) for (int k = 0; k < FEW; k++) own[i] += inverse[i][k] * part[k];
        }
        return own;
#else
        (void)turn, (void)own;
        REAL *const sums = q.sums(), *const x = q.x(), *const all = q.v();
        MINE { if (j < q.N) all[j] = v[k]; }
        SYNC();
        UNROLL(1) for (int first = 0; first < q.pieces; first += NT / TASK_LANES) {
            const int t = first + TID / TASK_LANES, lane = TID % TASK_LANES;
            REAL total = 0;
            if (t < q.pieces) {
                const int end = q.piece_start[t + 1];
                UNROLL(4) for (int e = q.piece_start[t] + lane; e < end; e += TASK_LANES) total += q.entry_value[e] * all[q.entry_column[e]];
            }
            total = over_lanes<TASK_LANES>(total);
            if (lane == 0 && t < q.pieces) sums[t] = total;
        }
        SYNC();
        UNROLL(1) for (int first = 0; first < q.m; first += NT / ROW_LANES) {
            const int i = first + TID / ROW_LANES, lane = TID % ROW_LANES;
            REAL total = 0;
            if (i < q.m) {
                const REAL* const line = q.inverse + i * q.pieces;
                UNROLL(8) for (int t = lane; t < q.pieces; t += ROW_LANES) total += line[t] * sums[t];
            }
            total = over_lanes<ROW_LANES>(total);
            if (lane == 0 && i < q.m) x[i] = shift ? total - shift[i] : total;
        }
        SYNC();
        return x;
#endif
    }
};

struct Instance {  // μ, α, the least size of decisions; costs, bounds, δ (null: none)
    REAL mu, alpha, least;
    const REAL *c, *lower, *upper, *delta;
};

// The default step, and the least size that decisions are taken to have: layers.splitting.Run. given: the step, or −1.
DEVICE void begin(const Rows& q, Instance& own, double given, double bend, bool curved, double largest, double smallest) {
    const double mu = own.mu, whole = mu + bend;
    double found[3] = {0, 0, 0};  // squares of how far costs may move decisions, and of costs; the largest of these
    COLUMNS(q.n) {
        const REAL width = own.upper[j] - own.lower[j], size = fabs(own.c[j]), moves = width > 0 ? size : (REAL)0;
        REAL reach = fabs(width) <= LARGEST ? width : (REAL)largest;
        if (mu > 0) reach = fmin(reach, (REAL)(moves / mu));
        found[0] += (double)reach * reach;
        found[1] += (double)moves * moves;
        found[2] = fmax(found[2], (double)size);
    }
    reduce<2, 1>(found);
    double step = found[1] > 0 ? STEP * sqrt(found[0]) / sqrt(found[1]) : mu > 0 ? STEP / mu : 1.0;
    if (curved && whole > 0) step = fmin(step, CURVED_STEP / whole);
    own.alpha = given > 0 ? given : step;
    const double pull = whole > 0 ? found[2] / whole : 0;
    own.least = smallest <= LARGEST ? smallest : pull > 0 && pull <= LARGEST ? pull : 1.0;
}

// c, w (count, n); z, inside (count, N); one line per instance, or one for all (step 0), of: shift = (M Mᵀ)⁻¹ r (m), bounds (N), δ (n)
// or null, ‖Q‖, and two lengths. masks (count, limit, N) or null: where each z lies inside. residual: how far z moved last, beside the
// largest decision; no number where z is none.
KERNEL splitting_iterate(ROWS_GIVEN, const REAL* c, const REAL* shift, int shift_step, const REAL* lower, const REAL* upper,
                         int bound_step, const REAL* delta, int delta_step, const double* bend, int bend_step, const double* largest,
                         const double* smallest, int length_step, double mu, double given, int limit, REAL* z_out,
                         unsigned char* inside, REAL* w_out, double* value, double* residual, REAL* alpha, unsigned char* masks) {
    const Rows q = ROWS_TAKEN;
    Entries entries;
    entries.read(q);
    int turn = 0;
    UNROLL(1) for (int b = BLOCK; b < count; b += BLOCKS) {
        Instance own = {(REAL)mu, 0, 0, c + (long long)b * n, lower + (long long)b * bound_step, upper + (long long)b * bound_step,
                        delta ? delta + (long long)b * delta_step : delta};
        begin(q, own, given, bend[b * bend_step], delta, largest[b * length_step], smallest[b * length_step]);
        const REAL *const shifted = shift + (long long)b * shift_step, smoothed = 1 - own.alpha * own.mu;
        unsigned char* const mask = masks ? masks + (long long)b * limit * N : masks;
        REAL z[EACH], low[EACH], high[EACH], cost[EACH];
        MINE {
            z[k] = 0;
            low[k] = j < N ? own.lower[j] : (REAL)0;
            high[k] = j < N ? own.upper[j] : (REAL)0;
            cost[k] = j < n ? own.alpha * own.c[j] : (REAL)0;
        }
        double found[3] = {0, 0, own.least};  // the sum of z, how far it moved last, the largest decision
        for (int taken = 1; taken <= limit; taken++) {
            REAL base[EACH], v[EACH], few[FEW ? FEW : 1];
            MINE {
                const REAL y = fmin(fmax(z[k], low[k]), high[k]);
                base[k] = (j < n ? smoothed : (REAL)1) * y - cost[k];
                if (delta && j < n) base[k] -= own.alpha * (own.delta[j] * y);
                v[k] = base[k] + (y - z[k]);
            }
            const REAL* const x = entries.multipliers(q, v, shifted, turn, few);
            MINE {
                const REAL point = entries.less(q, base[k], k, j, x);
                if (taken == limit) {
                    found[0] += point;
                    found[1] = fmax(found[1], (double)fabs(point - z[k]));
                    found[2] = fmax(found[2], (double)fabs(fmin(fmax(z[k], low[k]), high[k])));
                }
                z[k] = point;
                if (mask && j < N) mask[(long long)(taken - 1) * N + j] = point > low[k] && point < high[k];
            }
        }
        reduce<1, 2>(found);
        double worth[1] = {0};
        MINE {
            if (j < N) {
                z_out[(long long)b * N + j] = z[k];
                inside[(long long)b * N + j] = z[k] > low[k] && z[k] < high[k];
            }
            if (j < n) {
                const double point = fmin(fmax(z[k], low[k]), high[k]);
                worth[0] += point * (own.c[j] + 0.5 * (mu + (delta ? (double)own.delta[j] : 0.0)) * point);
                w_out[(long long)b * n + j] = (REAL)point;
            }
        }
        reduce<1, 0>(worth);
        if (TID == 0) {
            value[b] = worth[0];
            residual[b] = found[1] / found[2] + found[0] * 0.0;
            alpha[b] = own.alpha;
        }
    }
}

// out (count, n) = (dw/dc)ᵀ gradient through the last `taken` iterations, as
// kernels.davis_yin.adjoint: p = P g; c gets −α p; z gets κ p − α δ p where it lay inside its bounds, and g − p elsewhere.
// masks: a line of N for each iteration, mask_step bytes for each instance.
KERNEL splitting_back(ROWS_GIVEN, const REAL* gradient, const unsigned char* masks, int mask_step, int taken, const REAL* alpha,
                      double mu, const REAL* delta, int delta_step, REAL* out) {
    const Rows q = ROWS_TAKEN;
    Entries entries;
    entries.read(q);
    int turn = 0;
    UNROLL(1) for (int b = BLOCK; b < count; b += BLOCKS) {
        const unsigned char* mask = masks + (long long)b * mask_step + (long long)(taken - 1) * N;
        const REAL step = alpha[b], smoothed = 1 - step * (REAL)mu;
        REAL g[EACH], charge[EACH], few[FEW ? FEW : 1];
        MINE {
            g[k] = j < n && mask[j] ? gradient[(long long)b * n + j] : (REAL)0;
            charge[k] = 0;
        }
        UNROLL(1) for (int left = taken; left > 0; left--, mask -= N) {
            const REAL* const x = entries.multipliers(q, g, nullptr, turn, few);
            MINE {
                const REAL whole = g[k], p = entries.less(q, whole, k, j, x);
                charge[k] -= step * p;
                if (left > 1 && j < N) {
                    REAL inward = (j < n ? smoothed : (REAL)1) * p;
                    if (delta && j < n) inward -= step * (delta[(long long)b * delta_step + j] * p);
                    g[k] = mask[j - N] ? inward : whole - p;
                }
            }
        }
        MINE { if (j < n) out[(long long)b * n + j] = charge[k]; }
    }
}
