// M Θ Mᵀ + diag = L Lᵀ of one instance, by supernodes, level by level of the elimination tree.
//
// L lies in a panel: of each supernode the rows of a triangle, then those below it at a distance that is odd where lanes would
// meet in one bank. A triangle becomes its inverse, so that solves are products, in which no lane waits for another; rows and
// columns of a pivot that vanished are zero there: such a row is left out.
#pragma once
#include "block.cuh"

#ifndef AHEAD_SHORT
#define AHEAD_SHORT 4
#define AHEAD_LONG 2
#endif
#define STRIP 8  // columns of a triangle that are in registers
#define GROUP const unsigned group = lanes == W ? ALL : ((1u << lanes) - 1) << (LANE / lanes * lanes);
// Of `lanes` lanes: so many side by side have a column each, of which each of `parts` has a part.
#define PLACE_IN_GROUP                                                                                        \
    const int me = TID % lanes, w = q.w, wide = w > 1 ? 1 << (32 - leading_zeros(w - 1)) : 1, parts = lanes / wide;   \
    const int part = me / wide, at = (me & (wide - 1)) < w ? me & (wide - 1) : 0;
#define TRIANGLE(r) ((r) * ((r) + 1) / 2)

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
        UNROLL(FAR_AHEAD) for (int k = slice.x + LANE; k < slice.y; k += W) total[0] += p.pair_value[k] * x[p.pair_index[k]];
        over_lanes<1, 0>(total, slice.z);
        if (LANE % slice.z || target < 0) continue;
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

// Σ of dots of pieces, of at most LONGEST numbers, of the panel with pieces of x: the terms of one slice that belong to this lane.
// AHEAD of them are on their way at a time.
template <int LONGEST, int AHEAD, class V> DEVICE double pieces_up_to(const int2* words, int4 slice, Panel L, V x) {
    double total[2] = {0, 0};
    UNROLL(1) for (int k = slice.x + LANE; k < slice.y; k += AHEAD * W) {
        int2 word[AHEAD];
        UNROLL(AHEAD) for (int q = 0; q < AHEAD; q++) word[q] = k + q * W < slice.y ? words[k + q * W] : int2{0, 0};
        UNROLL(AHEAD) for (int q = 0; q < AHEAD; q++) {
            const double *a = x + (word[q].y & 0xffffff), *b = L + word[q].x;
            int length = (unsigned)word[q].y >> 24;
            UNROLL(LONGEST) for (int i = 0; i < LONGEST; i++) if (i < length) total[i & 1] += a[i] * b[i];
        }
    }
    return total[0] + total[1];
}

template <class V> DEVICE double pieces(const int2* words, int4 slice, Panel L, V x) {
    return slice.w <= 2 ? pieces_up_to<2, AHEAD_SHORT>(words, slice, L, x) : pieces_up_to<8, AHEAD_LONG>(words, slice, L, x);
}

// A triangle of L becomes its inverse. Entries at most `vanish` times the diagonal DIAGONAL of a row count as zero pivots.
// By one thread:
DEVICE void invert_alone(double* top, int w, const double* scratch, int first, double vanish) {
    UNROLL(1) for (int j = 0; j < w; j++) {
        double *mine = top + TRIANGLE(j), pivot = mine[j] - dot(mine, mine, j);
        double inverse = pivot > (vanish > 0 ? vanish * row((double*)scratch, first + j)[DIAGONAL] : 0) ? rsqrt(pivot) : 0;
        mine[j] = inverse;
        UNROLL(1) for (int r = j + 1; r < w; r++)
            top[TRIANGLE(r) + j] = (top[TRIANGLE(r) + j] - dot(top + TRIANGLE(r), mine, j)) * inverse;
    }
    UNROLL(1) for (int i = 1; i < w; i++) {
        double* mine = top + TRIANGLE(i);
        UNROLL(1) for (int j = 0; j < i; j++) {
            double total = 0;
            UNROLL(1) for (int k = j; k < i; k++) total += mine[k] * top[TRIANGLE(k) + j];
            mine[j] = -total * mine[i];
        }
    }
}

// By a group of lanes, one per row, STRIP columns at a time; all groups of a warp take as many turns.
DEVICE void invert_together(double* top, int w, int lanes, const double* scratch, int first, double vanish) {
    const int me = TID % lanes, turns = most_of_warp(w);
    double* const line = top + TRIANGLE(me < w ? me : 0);
    const double least = vanish > 0 && me < w ? vanish * row((double*)scratch, first + me)[DIAGONAL] : 0;
    UNROLL(1) for (int J = 0; J < turns; J += STRIP) {
        double a[STRIP], inverse[STRIP];
        UNROLL(STRIP) for (int c = 0; c < STRIP; c++) a[c] = me < w && J + c <= me ? line[J + c] : 0;
        if (J <= me && me < w) {
            UNROLL(2) for (int k = 0; k < J; k++) {
                double own = line[k];
                UNROLL(STRIP) for (int c = 0; c < STRIP; c++) if (J + c <= me) a[c] -= own * top[TRIANGLE(J + c) + k];
            }
        }
        double ahead = a[0];
        UNROLL(STRIP) for (int c = 0; c < STRIP; c++) {
            inverse[c] = 0;
            if (J + c < turns) {
                double pivot = shuffle(ahead > least ? ahead : 0, J + c, lanes);
                inverse[c] = J + c < w && pivot > 0 ? rsqrt(pivot) : 0;
                double own = a[c] * inverse[c];
                a[c] = me == J + c ? inverse[c] : own;
                if (c + 1 < STRIP) ahead = a[c + 1] - own * own;  // the next pivot, where it is
                UNROLL(STRIP) for (int d = c + 1; d < STRIP; d++)
                    if (J + d < turns) a[d] -= own * shuffle(own, J + d, lanes);
            }
        }
        UNROLL(STRIP) for (int c = 0; c < STRIP; c++) if (me < w && J + c <= me) line[J + c] = a[c];
        meet();
        // Rows J, J + 1, … of the inverse: this lane's column of them.
        UNROLL(STRIP) for (int c = 0; c < STRIP; c++) a[c] = me == J + c ? 1 : 0;
        if (J < w) {
            UNROLL(2) for (int k = 0; k < J; k++) {
                double own = me <= k ? top[TRIANGLE(k) + me] : 0;
                UNROLL(STRIP) for (int c = 0; c < STRIP; c++) if (J + c < w) a[c] -= own * top[TRIANGLE(J + c) + k];
            }
            UNROLL(STRIP) for (int c = 0; c < STRIP; c++) {
                a[c] *= inverse[c];
                UNROLL(STRIP) for (int d = c + 1; d < STRIP; d++) if (J + d < w) a[d] -= a[c] * top[TRIANGLE(J + d) + J + c];
            }
        }
        meet();
        UNROLL(STRIP) for (int c = 0; c < STRIP; c++) if (J + c < w && me <= J + c) top[TRIANGLE(J + c) + me] = a[c];
        meet();
    }
}

// Rows below, B ← B Tᵀ with the inverse T of their triangle: four columns at a time from the last, each row by `split` lanes.
DEVICE void rows_below(Panel L, int begin, int end, int split) {
    UNROLL(1) for (int k0 = begin; k0 < end; k0 += NT / split) {
        const int own = k0 + TID / split, k = own < end ? own : end - 1;
        const Node q(node_at(p.below_owner[k]));
        const double* top = L + q.base;
        double* line = L + (q.base + TRIANGLE(q.w) + (k - q.below) * q.ld);
        const int strips = own < end ? (q.w + 3) / 4 : 0;
        int turns = strips;
        if (split > 1) turns = (most_of_warp(strips) + split - 1) / split;
        UNROLL(1) for (int turn = 0; turn < turns; turn++) {
            const int J = 4 * (strips - 1 - turn * split - TID % split);
            double a[4] = {0, 0, 0, 0};
            if (J >= 0) {
                UNROLL(2) for (int i = 0; i < J; i++) {
                    double x = line[i];
                    UNROLL(4) for (int c = 0; c < 4; c++) if (J + c < q.w) a[c] += x * top[TRIANGLE(J + c) + i];
                }
                UNROLL(4) for (int i = 0; i < 4; i++) {
                    double x = J + i < q.w ? line[J + i] : 0;
                    UNROLL(4) for (int c = i; c < 4; c++) if (J + c < q.w) a[c] += x * top[TRIANGLE(J + c) + J + i];
                }
            }
            if (split > 1) meet();
            if (J >= 0) {
                UNROLL(4) for (int c = 0; c < 4; c++) if (J + c < q.w) line[J + c] = a[c];
            }
        }
    }
}

// A pivot at most `vanish` times its assembled diagonal, the field DIAGONAL, counts as zero; vanish 0 needs none.
NOINLINE void factorize(double vanish) {
    Panel L;
    double* const scratch = TASK->scratch;
    UNROLL(1) for (int level = 0; level < p.levels; level++) {
        int4 lists = LEVELS[2 * level], span = LEVELS[2 * level + 1];
        int first_below = p.below_level[level], last_below = p.below_level[level + 1];
        if (lists.x < lists.y) {  // what earlier levels contribute
            UNROLL(1) for (int s = lists.x + WARP; s < lists.y; s += NW) {
                int4 slice = p.update_slice[s];
                int task = p.update_task[s * W + LANE];
                double total[1] = {pieces(p.update_word, slice, L, L)};
                over_lanes<1, 0>(total, slice.z);
                if (LANE % slice.z == 0 && task >= 0) L[task] -= total[0];
            }
            SYNC();
        }
        const int lanes = span.z & 255;
        UNROLL(1) for (int s0 = span.x; s0 < span.y; s0 += NT / lanes) {
            int s = s0 + TID / lanes;
            Node q(node_at(s < span.y ? s : span.y - 1));
            int w = s < span.y ? q.w : 0;
            if (lanes == 1) invert_alone(L + q.base, w, scratch, q.first, vanish);
            else invert_together(L + q.base, w, lanes, scratch, q.first, vanish);
        }
        SYNC();
        if (first_below < last_below) {
            rows_below(L, first_below, last_below, span.z >> 8);
            SYNC();
        }
    }
}

// X ← (L Lᵀ)⁻¹ X
NOINLINE void substitute() {
    Panel L;
    double* x = X;
    UNROLL(1) for (int level = 0; level < p.levels; level++) {
        int4 lists = LEVELS[2 * level], span = LEVELS[2 * level + 1];
        if (lists.z < lists.w) {
            UNROLL(1) for (int s = lists.z + WARP; s < lists.w; s += NW) {
                int4 slice = p.pull_slice[s];
                int task = p.pull_task[s * W + LANE];
                double total[1] = {pieces(p.pull_word, slice, L, x)};
                over_lanes<1, 0>(total, slice.z);
                if (LANE % slice.z == 0 && task >= 0) x[task] -= total[0];
            }
            SYNC();
        }
        int lanes = span.w;
        GROUP
        UNROLL(1) for (int s = span.x + TID / lanes; s < span.y; s += NT / lanes) {
            Node q(node_at(s));
            const double* top = L + q.base;
            double* own = x + q.first;
            if (lanes == 1) {
                UNROLL(1) for (int j = q.w - 1; j >= 0; j--) own[j] = dot(own, top + TRIANGLE(j), j + 1);
                continue;
            }
            PLACE_IN_GROUP
            const double* mine = top + TRIANGLE(at);
            double total = 0;
            UNROLL(4) for (int k = part; k <= at; k += parts) total += mine[k] * own[k];
            UNROLL(1) for (int o = wide; o < lanes; o <<= 1) total += shuffle_xor(total, o, group);
            meet(group);
            if (me < w) own[me] = total;
        }
        SYNC();
    }
    UNROLL(1) for (int level = p.levels - 1; level >= 0; level--) {
        int4 span = LEVELS[2 * level + 1];
        int lanes = span.w;
        GROUP
        UNROLL(1) for (int s = span.x + TID / lanes; s < span.y; s += NT / lanes) {
            Node q(node_at(s));
            const double* top = L + q.base;
            const double* bottom = L + (q.base + TRIANGLE(q.w));
            double* own = x + q.first;
            if (lanes == 1) {
                UNROLL(1) for (int j = 0; j < q.w; j++) {
                    double total = own[j];
                    UNROLL(4) for (int i = 0; i < q.h; i++) total -= bottom[i * q.ld + j] * x[below_at(q.below + i)];
                    own[j] = total;
                }
                UNROLL(1) for (int j = 0; j < q.w; j++) {
                    double total = 0;
                    UNROLL(1) for (int i = j; i < q.w; i++) total += top[TRIANGLE(i) + j] * own[i];
                    own[j] = total;
                }
                continue;
            }
            PLACE_IN_GROUP
            double total = 0;
            UNROLL(4) for (int i = part; i < q.h; i += parts) total -= bottom[i * q.ld + at] * x[below_at(q.below + i)];
            UNROLL(1) for (int o = wide; o < lanes; o <<= 1) total += shuffle_xor(total, o, group);
            if (me < w) own[me] += total;
            meet(group);
            total = 0;
            UNROLL(4) for (int j = at + part; j < w; j += parts) total += top[TRIANGLE(j) + at] * own[j];
            UNROLL(1) for (int o = wide; o < lanes; o <<= 1) total += shuffle_xor(total, o, group);
            meet(group);
            if (me < w) own[me] = total;
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
        row_dots(scratch + IMAGE, [&](int i, double sum) {
            double* v = row(scratch, i);
            X[i] = v[WANTED] - sum - v[RATIO] * v[FOUND];
        });
        SYNC();
        substitute();
        ROWS { v[FOUND] += X[i]; X[i] = v[FOUND]; }
        SYNC();
    }
}
