// Instructions of a whole warp, after the tables of the PTX ISA.
#pragma once

#include "machine.hpp"

namespace ptx {

constexpr u32 LANES = 32;

inline u32 lane() { return host::me().thread % LANES; }
inline void warp_barrier(u32 mask, const char* text) {
    if (mask != ~0u) die(text, "not all lanes take part", mask);
    host::wait(host::now().warps[host::me().thread / LANES], LANES);
}

// With which lanes see what the others wrote; shuffles and votes promise nothing.
inline void warp_sync(u32 mask, const char* text) {
    warp_barrier(mask, text);
    ++self().now.warp;
}

// Words of all lanes, by lane. Those who meet here have to be at the same instruction.
using Row = u64[8];
template <int N> inline const Row* exchange(const u64 (&mine)[N], u32 mask, const char* text) {
    Machine& m = machine();
    const int thread = host::me().thread, first = thread / LANES * LANES, set = self().exchanges++ % 2;
    memcpy(m.words[set][thread], mine, sizeof mine);
    m.shown[set][thread] = text;
    warp_barrier(mask, text);
    for (u32 k = 0; k < LANES; ++k)
        if (m.shown[set][first + k] != text) die(text, "another lane is at another instruction", k);
    return m.words[set] + first;
}

// Which way a thread went at branches since the last barrier: where the lanes of a warp went apart, it is not said that
// they go together again before the next one.
inline bool branch(u64& path, bool taken) {
    path = path * 0x9e3779b97f4a7c15 + 1 + taken;
    return taken;
}
template <int N> inline const Row* together(u64 path, const u64 (&mine)[N], const char* text) {
    u64 all[N + 1] = {path};
    std::copy(mine, mine + N, all + 1);
    const Row* rows = exchange<N + 1>(all, ~0u, text);
    for (u32 k = 0; k < LANES; ++k)
        if (rows[k][0] != path) die(text, "no barrier after a branch that another lane took otherwise", k);
    return rows;
}

// ---- shuffles and votes

enum Mode { UP, DOWN, BFLY, IDX };

struct Shuffled {
    u32 value;
    bool inside;
};
template <Mode MODE> inline Shuffled shuffle(u32 a, u32 b, u32 c, u32 mask, const char* text) {
    const Row* rows = exchange<1>({a}, mask, text);
    const int by = b & 31, clamp = c & 31, segment = c >> 8 & 31, me = (int)lane();
    const int most = (me & segment) | (clamp & ~segment), least = me & segment;
    int from;
    bool inside;
    if (MODE == UP) from = me - by, inside = from >= most;
    else if (MODE == DOWN) from = me + by, inside = from <= most;
    else if (MODE == BFLY) from = me ^ by, inside = from <= most;
    else from = least | (by & ~segment), inside = from <= most;
    return {(u32)rows[inside ? from : me][0], inside};
}
inline u32 ballot(bool p, u32 mask, const char* text) {
    const Row* rows = exchange<1>({p}, mask, text);
    u32 r = 0;
    for (u32 k = 0; k < LANES; ++k) r |= (u32)rows[k][0] << k;
    return r;
}

// ---- matrices of 8 rows of 8 halves: lane l says where row l % 8 of matrix l / 8 is

inline Several<u32, 4> load_matrices4(u64 at, u64 path, const char* text) {
    checked<SHARED>(at, 16, 16, READ, text);
    const Row* rows = together<1>(path, {at}, text);
    Several<u32, 4> v;
    for (int matrix = 0; matrix < 4; ++matrix) {
        const u16* row = reinterpret_cast<const u16*>(host::now().shared + rows[matrix * 8 + lane() / 4][1]);
        v.v[matrix] = row[lane() % 4 * 2] | (u32)row[lane() % 4 * 2 + 1] << 16;
    }
    return v;
}

// ---- products. Element i of a lane, with g = lane / 4 ("groupID") and t = lane % 4 ("threadID_in_group"):

struct Spot {
    int row, column;
};
inline Spot spot_of_sum(int lane, int i) { return {lane / 4 + (i < 2 ? 0 : 8), lane % 4 * 2 + (i & 1)}; }

struct tf32 {  // m16n8k8: 4 elements of A, 2 of B, a register each
    static constexpr int K = 8, IN_WORD = 1;
    static Spot a(int lane, int i) { return {lane / 4 + (i == 0 || i == 2 ? 0 : 8), lane % 4 + (i < 2 ? 0 : 4)}; }
    static Spot b(int lane, int i) { return {lane % 4 + (i == 0 ? 0 : 4), lane / 4}; }
    static f64 value(u32 word, int) { return bits<f32>(word & ~0x1fffu); }
    // 13 bits are not looked at: of numbers that were not rounded they are lost.
    static bool rounded(u32 word) { return !(word & 0x1fff) || bits<f32>(word) != bits<f32>(word); }
};
template <class T> struct Halves {  // m16n8k16: 8 elements of A, 4 of B, two in a register
    static constexpr int K = 16, IN_WORD = 2;
    static Spot a(int lane, int i) {
        return {lane / 4 + (i < 2 || (4 <= i && i < 6) ? 0 : 8), lane % 4 * 2 + (i & 1) + (i < 4 ? 0 : 8)};
    }
    static Spot b(int lane, int i) { return {lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8), lane / 4}; }
    static f64 value(u32 word, int half) { return bits<T>((u16)(word >> 16 * half)); }
    static bool rounded(u32) { return true; }
};

// Who has the elements of A [16, K] and B [K, 8].
template <class M> struct Owners {
    struct Owner {
        int lane, i;
    } a[16][M::K], b[M::K][8];
    Owners() {
        for (int lane = 0; lane < 32; ++lane) {
            for (int i = 0; i < 4 * M::IN_WORD; ++i) a[M::a(lane, i).row][M::a(lane, i).column] = {lane, i};
            for (int i = 0; i < 2 * M::IN_WORD; ++i) b[M::b(lane, i).row][M::b(lane, i).column] = {lane, i};
        }
    }
};

template <class M>
inline Several<f32, 4> multiply(const Several<u32, 4>& a, const Several<u32, 2>& b, const Several<f32, 4>& c, u64 path,
                                const char* text) {
    static const Owners<M> owners;
    for (u32 word : {a.v[0], a.v[1], a.v[2], a.v[3], b.v[0], b.v[1]})
        if (!M::rounded(word)) die(text, "a factor is not rounded", word);
    const Row* rows = together<6>(path, {a.v[0], a.v[1], a.v[2], a.v[3], b.v[0], b.v[1]}, text);
    auto element = [&](auto owner, int first) {
        return M::value((u32)rows[owner.lane][first + owner.i / M::IN_WORD], owner.i % M::IN_WORD);
    };
    Several<f32, 4> d;
    for (int i = 0; i < 4; ++i) {
        const Spot at = spot_of_sum((int)lane(), i);
        f64 sum = c.v[i];
        for (int k = 0; k < M::K; ++k) sum += element(owners.a[at.row][k], 1) * element(owners.b[k][at.column], 5);
        d.v[i] = (f32)sum;
    }
    return d;
}

}  // namespace ptx
