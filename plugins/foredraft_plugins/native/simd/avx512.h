// Sixteen lanes in one 512-bit register, with VNNI integer dot products. Meanings: scalar.h.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#define FOREDRAFT_INLINE inline __attribute__((always_inline))

namespace foredraft::avx512 {
namespace {

constexpr int kLinearRows = 8;
constexpr int kDotRows = 4;  // of which so many, and so many halves of 16 columns, at once
constexpr int kDotHalves = 2;
constexpr int kDenseRows = 6;
constexpr int kDenseColumns = 4;
constexpr int kAttentionRows = 4;
constexpr int kAttentionVectors = 4;

using Floats = __m512;
using Ints = __m512i;

FOREDRAFT_INLINE __mmask16 first_lanes(int count) { return static_cast<__mmask16>((1u << count) - 1); }

FOREDRAFT_INLINE Floats set1(float x) { return _mm512_set1_ps(x); }
FOREDRAFT_INLINE Floats zeros() { return _mm512_setzero_ps(); }
FOREDRAFT_INLINE Floats load(const float* p) { return _mm512_loadu_ps(p); }
FOREDRAFT_INLINE void store(float* p, Floats a) { _mm512_storeu_ps(p, a); }
FOREDRAFT_INLINE Floats load_first(const float* p, int count) { return _mm512_maskz_loadu_ps(first_lanes(count), p); }
FOREDRAFT_INLINE void store_first(float* p, Floats a, int count) { _mm512_mask_storeu_ps(p, first_lanes(count), a); }

FOREDRAFT_INLINE Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
FOREDRAFT_INLINE Floats subtract(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
FOREDRAFT_INLINE Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
FOREDRAFT_INLINE Floats divide(Floats a, Floats b) { return _mm512_div_ps(a, b); }
FOREDRAFT_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
FOREDRAFT_INLINE Floats maximum(Floats a, Floats b) { return _mm512_max_ps(a, b); }
FOREDRAFT_INLINE Floats minimum(Floats a, Floats b) { return _mm512_min_ps(a, b); }
FOREDRAFT_INLINE Floats absolute(Floats a) { return _mm512_abs_ps(a); }
FOREDRAFT_INLINE Floats select_less(Floats x, Floats y, Floats a, Floats b) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_LT_OQ), b, a);
}
FOREDRAFT_INLINE Floats select_bits(uint32_t bits, Floats a, Floats b) {
  return _mm512_mask_blend_ps(static_cast<__mmask16>(bits), b, a);
}

FOREDRAFT_INLINE float sum(Floats a) {
  const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
// The four steps of sum, each on pairs of vectors: what lies side by side afterwards is added next.
FOREDRAFT_INLINE Floats sums(const Floats (&a)[16]) {
  Floats eight[8], four[4], two[2];
  for (int i = 0; i < 8; ++i) {  // of vectors 4b + j in the order j, b, which the last two steps turn round
    const Floats x = a[4 * (2 * i % 4) + i / 2], y = a[4 * (2 * i % 4 + 1) + i / 2];
    eight[i] = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
  }
  for (int i = 0; i < 4; ++i) {
    const Floats x = eight[2 * i], y = eight[2 * i + 1];
    four[i] = _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x88), _mm512_shuffle_f32x4(x, y, 0xdd));
  }
  for (int i = 0; i < 2; ++i) {
    const Floats x = four[2 * i], y = four[2 * i + 1];
    two[i] = _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x44), _mm512_shuffle_ps(x, y, 0xee));
  }
  return _mm512_add_ps(_mm512_shuffle_ps(two[0], two[1], 0x88), _mm512_shuffle_ps(two[0], two[1], 0xdd));
}
FOREDRAFT_INLINE float largest(Floats a) {
  const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a), high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

FOREDRAFT_INLINE Ints bits_of(Floats a) { return _mm512_castps_si512(a); }
FOREDRAFT_INLINE Floats floats_of(Ints a) { return _mm512_castsi512_ps(a); }
FOREDRAFT_INLINE Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
FOREDRAFT_INLINE Ints shift_left_23(Ints a) { return _mm512_slli_epi32(a, 23); }
FOREDRAFT_INLINE Floats to_floats(Ints a) { return _mm512_cvtepi32_ps(a); }
FOREDRAFT_INLINE Ints to_nearest(Floats a) { return _mm512_cvtps_epi32(a); }
FOREDRAFT_INLINE int32_t sum(Ints a) { return _mm512_reduce_add_epi32(a); }
FOREDRAFT_INLINE void store_bytes(int8_t* p, Ints a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
}
FOREDRAFT_INLINE Floats load_halves(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
FOREDRAFT_INLINE void hold(Floats& a) { asm("" : "+v"(a)); }
FOREDRAFT_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

using Codes = __m512i;
template <int BITS> FOREDRAFT_INLINE Codes load_codes(const uint8_t* p) { return _mm512_loadu_si512(p); }
FOREDRAFT_INLINE void split_nibbles(Codes both, Codes& low, Codes& high) {
  const __m512i nibble = _mm512_set1_epi8(15);
  low = _mm512_and_si512(both, nibble);
  high = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
}

template <int BITS, bool CENTRED> struct Dot {
  Ints partial;
  static FOREDRAFT_INLINE int32_t offset(int32_t total) { return CENTRED ? -(total << (BITS - 1)) : 0; }
  FOREDRAFT_INLINE void start(const int32_t* offset) {
    partial = CENTRED ? _mm512_set1_epi32(*offset) : _mm512_setzero_si512();
  }
  FOREDRAFT_INLINE void add4(Codes c, const int8_t* a) {
    int32_t four;
    std::memcpy(&four, a, 4);
    partial = _mm512_dpbusd_epi32(partial, c, _mm512_set1_epi32(four));
  }
  FOREDRAFT_INLINE Ints total() const { return partial; }
};

}  // namespace
}  // namespace foredraft::avx512
