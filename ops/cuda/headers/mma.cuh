// Matrix products of one warp on tensor cores, in words of 32 bits: a word of A or B holds one float (rounded to tf32)
// or two neighbours along the depth of a half type, so that the fragments of all types have one layout.
#pragma once
#include "portable.cuh"

namespace brick {

// A word as the tensor cores take it: floats rounded to tf32 (nearest, halves away from zero), halves as they are.
template <class T> BRICK_DEVICE unsigned fragment_word(unsigned word) { return word; }

#ifdef BRICK_HOST

template <> inline unsigned fragment_word<float>(unsigned word) { return (word + 0x1000u) & ~0x1fffu; }

// Where the lanes of a warp exchange fragments of A and B, in two sets that take turns.
struct Exchange {
    unsigned a[2][32][4], b[2][32][2];
    int turn[32];
};
inline Exchange& exchange_of(int warp) {
    static thread_local Exchange all[32];
    return all[warp];
}

inline float part(unsigned word, int, float) {
    float v;
    memcpy(&v, &word, 4);
    return v;
}
template <class T> inline float part(unsigned word, int k, T) {
    T v[2];
    memcpy(v, &word, 4);
    return v[k];
}

template <class T> inline void mma(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    Exchange& x = exchange_of(warp());
    const int me = lane(), set = x.turn[me] ^= 1;
    memcpy(x.a[set][me], a, sizeof a);
    memcpy(x.b[set][me], b, sizeof b);
    warp_sync();
    for (int r = 0; r < 4; ++r) {
        const int column = me % 4 * 2 + r % 2;
        for (int word = 0; word < 8; ++word)
            for (int k = 0; k < 4 / (int)sizeof(T); ++k)
                sum[r] += part(x.a[set][me / 4 * 4 + word % 4][word / 4 * 2 + r / 2], k, T()) *
                          part(x.b[set][column * 4 + word % 4][word / 4], k, T());
    }
}

#else

template <> BRICK_DEVICE unsigned fragment_word<float>(unsigned word) {
    unsigned rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(word)));
    return rounded;
}

#define BRICK_MMA(T, shape)                                                                                       \
    BRICK_DEVICE void mma_of(T, float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {                 \
        asm("mma.sync.aligned." shape " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                   \
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                     \
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                  \
    }
BRICK_MMA(float, "m16n8k8.row.col.f32.tf32.tf32.f32")
BRICK_MMA(half, "m16n8k16.row.col.f32.f16.f16.f32")
BRICK_MMA(bfloat, "m16n8k16.row.col.f32.bf16.bf16.f32")
#undef BRICK_MMA

// sum [16, 8] += A [16, 8 words] · B [8 words, 8]. With g = lane / 4 and t = lane % 4 a lane holds of A the words
// (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4); of B (t, g), (t + 4, g); of the sum (g, 2t), (g, 2t + 1) and the same
// of row g + 8. All lanes of the warp call it together.
template <class T> BRICK_DEVICE void mma(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    mma_of(T(), sum, a, b);
}

#endif

}  // namespace brick
