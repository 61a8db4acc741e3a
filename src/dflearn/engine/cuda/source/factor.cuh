// M Θ Mᵀ + diag = L Lᵀ of one instance, by supernodes, level by level of the elimination tree.
//
// L lies in a panel: of each supernode the rows of a triangle, then those below it at a distance that is odd where lanes would
// meet in one bank. On the diagonal lies 1/L_jj, zero where a pivot vanished: such a row is left out.
#pragma once
#include "block.cuh"

#define AHEAD 2
// Lanes of a group are a power of two: whole division takes long on a GPU.
#define GROUP                                                                                      \
    const int shift = 31 - leading_zeros(lanes), me = TID & (lanes - 1), number = TID >> shift;    \
    const unsigned group = lanes == W ? ALL : ((1u << lanes) - 1) << (LANE - me);                  \
    (void)group;
#define TRIANGLE(r) ((r) * ((r) + 1) >> 1)

// An address in the panel: in fast memory; with -DSPILL those before p.far, the leaves of the tree, in global memory.
struct Panel {
#ifdef SPILL
    double* far;
    MEMBER Panel() : far(TASK->far) {}
    MEMBER double* operator+(int at) const { return at >= p.far ? fast + p.panel_at + (at - p.far) : far + at; }
#else
    MEMBER double* operator+(int at) const { return fast + p.panel_at + at; }
#endif
    MEMBER double& operator[](int at) const { return *(*this + at); }
};

struct Node {  // a supernode: its first column, columns, rows below, place in the panel, their distance, their place in BELOW
    int first, w, h, base, ld, below;
    MEMBER Node(int4 q)
        : first(q.x), w(q.y & 255), h(q.y >> 8), base(q.z), ld((q.y & 1) == 0 && (q.y & 255) >= 6 ? (q.y & 255) + 1 : q.y & 255), below(q.w) {}
};

DEVICE int4 node_at(int s) { return p.near_shape ? NODES[s] : p.node[s]; }
DEVICE int below_at(int k) { return p.near_shape ? BELOW[k] : p.below[k]; }

DEVICE void copy_shape() {  // into fast memory
    UNROLL(1) for (int k = TID; k < 2 * p.levels; k += NT) LEVELS[k] = p.level[k];
    if (!p.near_shape) return;
    UNROLL(1) for (int k = TID; k < p.nodes; k += NT) NODES[k] = p.node[k];
    UNROLL(1) for (int k = TID; k < p.rows_below; k += NT) BELOW[k] = p.below[k];
}

// The lower triangle of M Θ Mᵀ + damping + diag(extra); rows and columns where mask is 0 become those of the identity.
// theta: a field of columns; extra, mask and diagonals, which becomes the diagonal: fields of rows, or NONE.
#define NONE (-1)
NOINLINE void assemble(int theta, double damping, int extra, int mask, int diagonals) {
    Panel L;
    double* const scratch = TASK->scratch;
    const double* x = scratch + theta;
    UNROLL(1) for (int k = TID; k < p.panel; k += NT) L[k] = 0;
    SYNC();
    UNROLL(1) for (int s = WARP; s < p.pair_slices; s += NW) {
        int4 slice = p.pair_slice[s];
        int at = s * W + LANE, target = p.pair_target[at], i = p.pair_i[at], j = p.pair_j[at];
        double total[1] = {0};
        UNROLL(4) for (int k = slice.x + LANE; k < slice.y; k += W) total[0] += p.pair_value[k] * x[p.pair_index[k]];
        over_lanes<1, 0>(total, slice.z);
        if ((LANE & (slice.z - 1)) || target < 0) continue;
        double entry = total[0];
        if (i == j) {
            double* v = row(scratch, i);
            entry += damping + (extra >= 0 ? v[extra] : 0);
            if (mask >= 0) entry = v[mask] * entry + (1 - v[mask]);
            if (diagonals >= 0) v[diagonals] = entry;
        }
        else if (mask >= 0) entry *= row(scratch, i)[mask] * row(scratch, j)[mask];
        L[target] = entry;
    }
    SYNC();
}

DEVICE double dot(const double* a, const double* b, int length) {
    double x = 0, y = 0;
    int k = 0;
    UNROLL(2) for (; k + 1 < length; k += 2) { x += a[k] * b[k]; y += a[k + 1] * b[k + 1]; }
    if (k < length) x += a[k] * b[k];
    return x + y;
}

// Σ of dots of pieces of the panel with pieces of x: the terms of one slice that belong to this lane.
template <class V> DEVICE double pieces(const int2* words, int4 slice, Panel L, V x) {
    double total = 0;
    UNROLL(1) for (int k = slice.x + LANE; k < slice.y; k += AHEAD * W) {
        int2 word[AHEAD];
        UNROLL(AHEAD) for (int q = 0; q < AHEAD; q++) word[q] = k + q * W < slice.y ? words[k + q * W] : int2{0, 0};
        UNROLL(AHEAD) for (int q = 0; q < AHEAD; q++) total += dot(x + (word[q].y & 0xffffff), L + word[q].x, (unsigned)word[q].y >> 24);
    }
    return total;
}

#define TINY 1e-300
// 1/√pivot; zero for a pivot that vanishes, or is no number.
DEVICE double root(double pivot, double least) { return pivot > fmax(least, TINY) && pivot <= LARGEST ? inverse_root(pivot) : 0; }

// A slice of sums, and the sum of this lane. The first of a level is fetched while the level before is at work; level 0 has none.
struct Work {
    int4 slice = {0, 0, 1, 0};
    int task = -1;
    MEMBER Work() {}
    MEMBER Work(const int4* slices, const int* tasks, int s) : slice(slices[s]), task(tasks[s * W + LANE]) {}
};

// A pivot at most `vanish` times its assembled diagonal, the field DIAGONAL, counts as zero; vanish 0 needs none.
NOINLINE void factorize(double vanish) {
    Panel L;
    double* const scratch = TASK->scratch;
    Work work;
    UNROLL(1) for (int level = 0; level < p.levels; level++) {
        int4 lists = LEVELS[2 * level], span = LEVELS[2 * level + 1];
        int first_below = p.below_level[level], last_below = p.below_level[level + 1];
        if (lists.x < lists.y) {  // what earlier levels contribute
            UNROLL(1) for (int s = lists.x + WARP; s < lists.y; s += NW) {
                if (s >= lists.x + NW) work = Work(p.update_slice, p.update_task, s);
                const int4 slice = work.slice;
                const int task = work.task;
                double total[1] = {pieces(p.update_word, slice, L, L)};
                over_lanes<1, 0>(total, slice.z);
                if (!(LANE & (slice.z - 1)) && task >= 0) L[task] -= total[0];
            }
            SYNC();
        }
        if (level + 1 < p.levels) {  // on its way meanwhile
            const int4 next = LEVELS[2 * level + 2];
            if (next.x + WARP < next.y) work = Work(p.update_slice, p.update_task, next.x + WARP);
        }
        // Triangles: one thread each, or a group of lanes, one per row; all groups of a warp take as many turns. Where a lane has
        // a row (each 1), or two, rows below are among them.
        const int lanes = span.z & 255, each = span.z >> 8;
        GROUP
        UNROLL(1) for (int s0 = span.x; s0 < span.y; s0 += NT >> shift) {
            int s = s0 + number;
            Node q(node_at(s < span.y ? s : span.y - 1));
            const int w = s < span.y ? q.w : 0, rows = each && w ? w + q.h : w;
            double* top = L + q.base;
            if (lanes == 1) {
                UNROLL(1) for (int j = 0; j < w; j++) {
                    double *mine = top + TRIANGLE(j), pivot = mine[j] - dot(mine, mine, j);
                    double inverse = root(pivot, vanish > 0 ? vanish * row(scratch, q.first + j)[DIAGONAL] : 0);
                    mine[j] = inverse;
                    UNROLL(1) for (int r = j + 1; r < w; r++)
                        top[TRIANGLE(r) + j] = (top[TRIANGLE(r) + j] - dot(top + TRIANGLE(r), mine, j)) * inverse;
                }
                continue;
            }
            const int turns = most_of_warp(w);
            double* line = top + (me < w ? TRIANGLE(me) : me < rows ? TRIANGLE(w) + (me - w) * q.ld : 0);
            double* second = top + (me + lanes < rows ? TRIANGLE(w) + (me + lanes - w) * q.ld : 0);
            UNROLL(1) for (int j = 0; j < turns; j++) {
                const bool here = j <= me && me < rows && j < w, there = j < w && me + lanes < rows;
                const double* other = top + (j < w ? TRIANGLE(j) : 0);
                double value = 0, below = 0;
                if (each < 2) { if (here) value = line[j] - dot(line, other, j); }
                else if (here || there) {
                    const double *a = here ? line : second, *b = there ? second : line;
                    value = a[j];
                    below = b[j];
                    UNROLL(2) for (int k = 0; k < j; k++) { double x = other[k]; value -= a[k] * x; below -= b[k] * x; }
                }
                double pivot = shuffle(value, j, lanes);
                double inverse = j < w ? root(pivot, vanish > 0 ? vanish * row(scratch, q.first + j)[DIAGONAL] : 0) : 0;
                if (here) line[j] = me == j ? inverse : value * inverse;
                if (there) second[j] = below * inverse;
                meet();
            }
        }
        SYNC();
        if (each || first_below == last_below) continue;
        // Rows below: one thread each.
        UNROLL(1) for (int k = first_below + TID; k < last_below; k += NT) {
            Node q(node_at(p.below_owner[k]));
            double *top = L + q.base, *line = L + (q.base + TRIANGLE(q.w) + (k - q.below) * q.ld);
            UNROLL(1) for (int j = 0; j < q.w; j++) line[j] = (line[j] - dot(line, top + TRIANGLE(j), j)) * top[TRIANGLE(j) + j];
        }
        SYNC();
    }
}

// X ← (L Lᵀ)⁻¹ X
NOINLINE void substitute() {
    Panel L;
    double* x = X;
    Work work;
    UNROLL(1) for (int level = 0; level < p.levels; level++) {
        int4 lists = LEVELS[2 * level], span = LEVELS[2 * level + 1];
        if (lists.z < lists.w) {
            UNROLL(1) for (int s = lists.z + WARP; s < lists.w; s += NW) {
                if (s >= lists.z + NW) work = Work(p.pull_slice, p.pull_task, s);
                const int4 slice = work.slice;
                const int task = work.task;
                double total[1] = {pieces(p.pull_word, slice, L, x)};
                over_lanes<1, 0>(total, slice.z);
                if (!(LANE & (slice.z - 1)) && task >= 0) x[task] -= total[0];
            }
            SYNC();
        }
        if (level + 1 < p.levels) {
            const int4 next = LEVELS[2 * level + 2];
            if (next.z + WARP < next.w) work = Work(p.pull_slice, p.pull_task, next.z + WARP);
        }
        const int lanes = span.w;
        GROUP
        UNROLL(1) for (int s = span.x + number; s < span.y; s += NT >> shift) {
            Node q(node_at(s));
            const double* top = L + q.base;
            if (lanes == 1) {
                UNROLL(1) for (int j = 0; j < q.w; j++)
                    x[q.first + j] = (x[q.first + j] - dot(x + q.first, top + TRIANGLE(j), j)) * top[TRIANGLE(j) + j];
                continue;
            }
            const int w = q.w, safe = me < w ? me : 0;
            const double* row = top + TRIANGLE(safe);
            double scale = row[safe], own = me < w ? x[q.first + me] * scale : 0;  // scaled beforehand: one product less to wait for
            UNROLL(4) for (int j = 0; j < w - 1; j++) {
                double factor = me > j && me < w ? row[j] * scale : 0;
                own -= factor * shuffle(own, j, lanes, group);
            }
            if (me < w) x[q.first + me] = own;
        }
        SYNC();
    }
    UNROLL(1) for (int level = p.levels - 1; level >= 0; level--) {
        int4 span = LEVELS[2 * level + 1];
        const int lanes = span.w;
        GROUP
        UNROLL(1) for (int s = span.x + number; s < span.y; s += NT >> shift) {
            Node q(node_at(s));
            int w = q.w, h = q.h, ld = q.ld;
            const double* top = L + q.base;
            const double* bottom = L + (q.base + TRIANGLE(w));
            if (lanes == 1) {
                UNROLL(1) for (int j = w - 1; j >= 0; j--) {
                    double total = x[q.first + j];
                    UNROLL(4) for (int i = 0; i < h; i++) total -= bottom[i * ld + j] * x[below_at(q.below + i)];
                    UNROLL(1) for (int i = j + 1; i < w; i++) total -= top[TRIANGLE(i) + j] * x[q.first + i];
                    x[q.first + j] = total * top[TRIANGLE(j) + j];
                }
                continue;
            }
            const int bits = w > 1 ? 32 - leading_zeros(w - 1) : 0, wide = 1 << bits, column = me & (wide - 1);
            const int parts = lanes >> bits, safe = column < w ? column : 0;
            double own = 0, scale = top[TRIANGLE(safe) + safe];
            UNROLL(4) for (int i = me >> bits; i < h; i += parts) own -= bottom[i * ld + safe] * x[below_at(q.below + i)];
            UNROLL(1) for (int o = wide; o < lanes; o <<= 1) own += shuffle_xor(own, o, group);
            own = me < w ? (own + x[q.first + me]) * scale : 0;
            UNROLL(4) for (int j = w - 1; j > 0; j--) {
                double factor = column < j ? top[TRIANGLE(j) + column] * scale : 0;
                own -= factor * shuffle(own, j, lanes, group);
            }
            if (me < w) x[q.first + me] = own;
        }
        SYNC();
    }
}

// X ← (M Θ Mᵀ + diag(RATIO))⁻¹ X, Θ the field THETA, refined `times` over. Uses WANTED, FOUND and IMAGE.
NOINLINE void solve_system(int times) {
    if (!times) { substitute(); return; }
    double* const scratch = TASK->scratch;
    ROWS v[WANTED] = X[i];
    SYNC();
    substitute();
    ROWS v[FOUND] = X[i];
    SYNC();
    for (int k = 0; k < times; k++) {
        COLUMNS v[IMAGE] = v[THETA] * column_dot(j, X);
        SYNC();
        row_dots(scratch + IMAGE, [&](int i, double sum, int) {
            double* v = row(scratch, i);
            X[i] = v[WANTED] - sum - v[RATIO] * v[FOUND];
        });
        SYNC();
        substitute();
        ROWS { v[FOUND] += X[i]; X[i] = v[FOUND]; }
        SYNC();
    }
}
