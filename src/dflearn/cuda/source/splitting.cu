// Davis-Yin iterations of every instance of a batch, all of them in one launch, and the way back: dflearn.kernels.davis_yin.
//
// One block iterates one instance. A thread keeps EACH columns in its registers, with their entries of M where there are at most
// ENTRIES (0: they are read again and again). What all instances share, the rows M and (M Mᵀ)⁻¹, dense, is small enough for the caches:
// programs of few rows. With FEW > 0 there are so many rows, and registers hold all of it: one barrier an iteration. Otherwise v lies
// in fast memory; TASK_LANES and ROW_LANES threads sum a piece of a row of M, and a row of (M Mᵀ)⁻¹. -DREAL=float or double.
#include "threads.cuh"

#define CHECK_EVERY 5
#define STEP 0.3
#define CURVED_STEP 1.5
#define FAR_PRICE 10.0
#define SILENT 64.0
#define LARGEST 1.7976931348623157e308
#define NO_NUMBER ((1e300 * 1e300) * 0.0)
#define NOT_FOUND 4
#define FAILED 5
#define MOST_SUMS 4
#define COLUMNS(count) UNROLL(1) for (int j = TID; j < (count); j += NT)
#define MINE UNROLL(EACH) for (int k = 0, j = TID; k < EACH; k++, j += NT)  // the columns of this thread; j may be past the last

#ifdef EMULATE
static double* fast;
extern "C" void prepare(double* memory) { fast = memory; }
#else
extern __shared__ double fast[];  // sums of warps; z (N); terms, w (n); x (m); pieces, or sums of FEW rows twice; v (N), unless FEW
#endif

// Rows of M, each cut into pieces of entries; the same by columns; the inverse (m, pieces): (M Mᵀ)⁻¹, its columns once for each piece.
struct Rows {
    int n, N, m, pieces;
    const int *piece_start, *entry_column; const REAL* entry_value; const int* row_piece;
    const REAL* inverse;
    const int *column_start, *column_row; const REAL* column_value;
    const unsigned char* inequality;

    MEMBER REAL* z() const { return (REAL*)(fast + MOST_SUMS * NW); }
    MEMBER REAL* terms() const { return z() + N; }
    MEMBER REAL* w() const { return terms() + n; }
    MEMBER REAL* x() const { return w() + n; }
    MEMBER REAL* sums() const { return x() + m; }
    MEMBER REAL* v() const { return sums() + pieces; }
};

#define ROWS_GIVEN                                                                                                             \
    int count, int n, int N, int m, int pieces, const int *piece_start, const int *entry_column, const REAL *entry_value,      \
        const int *row_piece, const REAL *inverse, const int *column_start, const int *column_row, const REAL *column_value,   \
        const unsigned char *inequality
#define ROWS_TAKEN                                                                                                             \
    { n, N, m, pieces, piece_start, entry_column, entry_value, row_piece, inverse, column_start, column_row, column_value, inequality }

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

struct Instance {  // μ, α, the least size of decisions; costs, sides, δ (null: none)
    REAL mu, alpha, least;
    const REAL *c, *r, *lower, *upper, *delta;

    MEMBER REAL cost(int j) const { return alpha * c[j]; }
    MEMBER REAL bent(int j, REAL y) const { return delta ? alpha * (delta[j] * y) : (REAL)0; }
    MEMBER REAL clip(int j, REAL z) const { return fmin(fmax(z, lower[j]), upper[j]); }
};

// The relative KKT residual of w = clip(z) and the prices x/α, as kernels.davis_yin.relative_residual. w becomes that, with `snap`
// without what rounding leaves of zeros; x loses what presses an inequality the wrong way.
DEVICE double relative_residual(const Rows& q, const Instance& own, double rounding, bool snap) {
    const REAL* const z = q.z();
    REAL *const terms = q.terms(), *const w = q.w(), *const x = q.x();
    double sizes[4] = {0, 0, 0, own.least};  // prices, costs, felt, the largest decision
    UNROLL(1) for (int i = TID; i < q.m; i += NT) {
        if (q.inequality[i]) x[i] = fmax(x[i], (REAL)0);
        sizes[0] = fmax(sizes[0], (double)fabs(x[i]));
    }
    COLUMNS(q.n) {
        const REAL at = own.clip(j, z[j]), cost = fabs(own.cost(j)), pull = fabs(own.alpha * own.mu * at) + fabs(own.bent(j, at));
        const REAL both = fmax(cost, pull);
        sizes[1] = fmax(sizes[1], (double)both);
        sizes[2] = fmax(sizes[2], (double)(at > own.lower[j] && at < own.upper[j] ? both : pull));
        sizes[3] = fmax(sizes[3], (double)fabs(at));
    }
    reduce<0, 4>(sizes);
    const double largest = sizes[3], quiet = rounding * largest, faint = rounding * fmax(sizes[2], fmin(sizes[0], FAR_PRICE * sizes[1]));
    double found[3] = {0, 0, 0};  // the value, what is lost, the worst
    COLUMNS(q.n) {
        const REAL low = own.lower[j], high = own.upper[j], cost = own.cost(j);
        REAL at = own.clip(j, z[j]);
        if (snap && !(fabs(at) > quiet)) at = own.clip(j, 0);
        w[j] = at;
        const REAL pull = own.alpha * own.mu * at, turn = own.bent(j, at);
        REAL reduced = cost + pull + turn, total = fabs(cost) + fabs(pull) + fabs(turn);
        UNROLL(1) for (int k = q.column_start[j]; k < q.column_start[j + 1]; k++) {
            const REAL term = q.column_value[k] * x[q.column_row[k]];
            reduced += term;
            total += fabs(term);
        }
        terms[j] = total;
        REAL wrong = fmax(at < high ? fmax(-reduced, (REAL)0) : (REAL)0, at > low ? fmax(reduced, (REAL)0) : (REAL)0);
        if (!(total > faint)) wrong = 0;
        if (wrong > 0) found[2] = fmax(found[2], (double)(wrong / total));
        found[0] += fabs(cost * at) + (REAL)0.5 * fabs(pull * at) + (REAL)0.5 * fabs(turn * at);
        if (wrong > 0) found[1] += wrong * fmin((double)(reduced > 0 ? at - low : high - at), largest);
    }
    SYNC();
    UNROLL(1) for (int first = 0; first < q.m; first += NW) {
        const int i = first + WARP;
        REAL gap = 0, total = 0, share = 0;
        if (i < q.m) {
            const int end = q.piece_start[q.row_piece[i + 1]];
            UNROLL(1) for (int k = q.piece_start[q.row_piece[i]] + LANE; k < end; k += W) {
                const int j = q.entry_column[k];
                if (j >= q.n) continue;
                const REAL term = q.entry_value[k] * w[j], part = fabs(q.entry_value[k] * x[i]);
                gap += term;
                total += fabs(term);
                if (part > faint) share = fmax(share, part / terms[j]);
            }
        }
        UNROLL(5) for (int o = W / 2; o; o /= 2) {
            gap += shuffle_xor(gap, o);
            total += shuffle_xor(total, o);
            share = fmax(share, shuffle_xor(share, o));
        }
        if (i < q.m && LANE == 0) {
            gap -= own.r[i];
            total += fabs(own.r[i]);
            REAL wrong = fabs(gap) > quiet || total > SILENT * quiet ? fabs(gap) : (REAL)0;
            found[1] += wrong * fabs(x[i]);
            if (wrong > 0) wrong /= total;
            if (q.inequality[i] && !(gap > 0)) wrong = fmin(wrong, share);
            found[2] = fmax(found[2], (double)wrong);
        }
    }
    reduce<2, 1>(found);
    const double loss = found[1] > faint * largest ? found[1] : 0;
    return fmax(found[2], loss > 0 ? loss / (found[0] + loss) : 0.0);
}

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

// c, w (count, n); z, inside (count, N); one line per instance, or one for all (step 0), of: shift = (M Mᵀ)⁻¹ r and r (m), bounds
// (N), δ (n) or null, ‖Q‖, and two lengths. starts (count, N) or null. masks (count, limit, N) or null: where each z lies inside.
// w and value are no numbers where there is no decision. Statuses: `usual`, NOT_FOUND or FAILED.
KERNEL splitting_iterate(ROWS_GIVEN, const REAL* c, const REAL* shift, const REAL* r, int r_step, const REAL* lower, const REAL* upper,
                         int bound_step, const REAL* delta, int delta_step, const double* bend, int bend_step, const double* largest,
                         const double* smallest, int length_step, const REAL* starts, double mu, double given, int limit,
                         double tolerance, double rounding, int usual, REAL* z_out, unsigned char* inside, REAL* w_out, double* value,
                         double* residual, int* iterations, signed char* status, REAL* alpha, unsigned char* masks) {
    const Rows q = ROWS_TAKEN;
    Entries entries;
    entries.read(q);
    int turn = 0;
    UNROLL(1) for (int b = BLOCK; b < count; b += BLOCKS) {
        Instance own = {(REAL)mu, 0, 0, c + (long long)b * n, r + (long long)b * r_step, lower + (long long)b * bound_step,
                        upper + (long long)b * bound_step, delta ? delta + (long long)b * delta_step : delta};
        begin(q, own, given, bend[b * bend_step], delta, largest[b * length_step], smallest[b * length_step]);
        const REAL *const shifted = shift + (long long)b * r_step, smoothed = 1 - own.alpha * own.mu;
        unsigned char* const mask = masks ? masks + (long long)b * limit * N : masks;
        REAL z[EACH], low[EACH], high[EACH], cost[EACH];
        MINE {
            z[k] = starts && j < N ? starts[(long long)b * N + j] : (REAL)0;
            low[k] = j < N ? own.lower[j] : (REAL)0;
            high[k] = j < N ? own.upper[j] : (REAL)0;
            cost[k] = j < n ? own.cost(j) : (REAL)0;
        }
        double missing = 0;
        int taken = 0;
        while (taken < limit) {
            taken++;
            const bool look = taken == limit || (tolerance > 0 && taken % CHECK_EVERY == 0);
            double found[3] = {0, 0, own.least};  // the sum of z, how far it moved, the largest decision
            REAL base[EACH], v[EACH], few[FEW ? FEW : 1];
            MINE {
                const REAL y = fmin(fmax(z[k], low[k]), high[k]);
                base[k] = (j < n ? smoothed : (REAL)1) * y - cost[k];
                if (delta && j < n) base[k] -= own.bent(j, y);
                v[k] = base[k] + (y - z[k]);
            }
            const REAL* const x = entries.multipliers(q, v, shifted, turn, few);
            MINE {
                const REAL point = entries.less(q, base[k], k, j, x);
                if (look) {
                    found[0] += point;
                    found[1] = fmax(found[1], (double)fabs(point - z[k]));
                    found[2] = fmax(found[2], (double)fabs(fmin(fmax(z[k], low[k]), high[k])));
                    if (j < N) q.z()[j] = point;
                }
                z[k] = point;
                if (mask && j < N) mask[(long long)(taken - 1) * N + j] = point > low[k] && point < high[k];
            }
            if (!look) continue;
#if FEW
            if (TID == 0) { UNROLL(FEW) for (int i = 0; i < FEW; i++) q.x()[i] = few[i]; }
#endif
            reduce<1, 2>(found);
            missing = found[1] / found[2] + found[0] * 0.0;  // no number, where the sum is none
            if (taken < limit && !(missing <= tolerance)) continue;
            missing = fmax(found[1] / found[2], relative_residual(q, own, rounding, tolerance > 0)) + found[0] * 0.0;
            if (missing <= tolerance) break;
        }
        const bool decided = missing <= (tolerance > 0 ? tolerance : LARGEST);
        double worth[1] = {0};
        MINE {
            if (j < N) {
                z_out[(long long)b * N + j] = z[k];
                inside[(long long)b * N + j] = z[k] > low[k] && z[k] < high[k];
            }
            if (j < n) {
                const double point = q.w()[j];
                worth[0] += point * (own.c[j] + 0.5 * (mu + (delta ? (double)own.delta[j] : 0.0)) * point);
                w_out[(long long)b * n + j] = decided ? (REAL)point : (REAL)NO_NUMBER;
            }
        }
        reduce<1, 0>(worth);
        if (TID == 0) {
            value[b] = decided ? worth[0] : NO_NUMBER;
            residual[b] = missing;
            iterations[b] = taken;
            status[b] = decided ? usual : fabs(missing) <= LARGEST ? NOT_FOUND : FAILED;
            alpha[b] = own.alpha;
        }
    }
}

// out (count, n) = (dw/dc)ᵀ gradient through the last `taken` iterations of each instance, or through the last alone (null), as
// kernels.davis_yin.adjoint: p = P g; c gets −α p; z gets κ p − α δ p where it lay inside its bounds, and g − p elsewhere.
// masks: a line of N for each iteration, mask_step bytes for each instance.
KERNEL splitting_back(ROWS_GIVEN, const REAL* gradient, const unsigned char* masks, int mask_step, const int* taken, const REAL* alpha,
                      double mu, const REAL* delta, int delta_step, REAL* out) {
    const Rows q = ROWS_TAKEN;
    Entries entries;
    entries.read(q);
    int turn = 0;
    UNROLL(1) for (int b = BLOCK; b < count; b += BLOCKS) {
        const int last = taken ? taken[b] : 1;
        const unsigned char* mask = masks + (long long)b * mask_step + (long long)(last - 1) * N;
        const REAL step = alpha[b], smoothed = 1 - step * (REAL)mu;
        REAL g[EACH], charge[EACH], few[FEW ? FEW : 1];
        MINE {
            g[k] = j < n && mask[j] ? gradient[(long long)b * n + j] : (REAL)0;
            charge[k] = 0;
        }
        UNROLL(1) for (int left = last; left > 0; left--, mask -= N) {
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
