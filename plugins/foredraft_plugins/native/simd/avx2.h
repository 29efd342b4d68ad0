// Sixteen lanes in two 256-bit registers. Meanings: scalar.h.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#define FOREDRAFT_INLINE inline __attribute__((always_inline))

namespace foredraft::avx2 {
namespace {

constexpr int kLinearRows = 2;  // sixteen registers: the accumulators of more rows would spill
constexpr int kDotRows = 2;     // of which so many, and so many halves of 16 columns, at once
constexpr int kDotHalves = 1;
constexpr int kDenseRows = 2;
constexpr int kDenseColumns = 2;
constexpr int kAttentionRows = 2;
constexpr int kAttentionVectors = 2;

struct Floats {
  __m256 low, high;
};
struct Ints {
  __m256i low, high;
};

FOREDRAFT_INLINE __m256i first_lanes(int count) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
FOREDRAFT_INLINE __m256 select(__m256 choose_a, __m256 a, __m256 b) { return _mm256_blendv_ps(b, a, choose_a); }

FOREDRAFT_INLINE Floats set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
FOREDRAFT_INLINE Floats zeros() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
FOREDRAFT_INLINE Floats load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
FOREDRAFT_INLINE void store(float* p, Floats a) {
  _mm256_storeu_ps(p, a.low);
  _mm256_storeu_ps(p + 8, a.high);
}
FOREDRAFT_INLINE Floats load_first(const float* p, int count) {
  return {_mm256_maskload_ps(p, first_lanes(count)), _mm256_maskload_ps(p + 8, first_lanes(count - 8))};
}
FOREDRAFT_INLINE void store_first(float* p, Floats a, int count) {
  _mm256_maskstore_ps(p, first_lanes(count), a.low);
  _mm256_maskstore_ps(p + 8, first_lanes(count - 8), a.high);
}

FOREDRAFT_INLINE Floats add(Floats a, Floats b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
FOREDRAFT_INLINE Floats subtract(Floats a, Floats b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
FOREDRAFT_INLINE Floats multiply(Floats a, Floats b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
FOREDRAFT_INLINE Floats divide(Floats a, Floats b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
FOREDRAFT_INLINE Floats fma(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
FOREDRAFT_INLINE Floats maximum(Floats a, Floats b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
FOREDRAFT_INLINE Floats minimum(Floats a, Floats b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
FOREDRAFT_INLINE Floats absolute(Floats a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
FOREDRAFT_INLINE Floats select_less(Floats x, Floats y, Floats a, Floats b) {
  return {select(_mm256_cmp_ps(x.low, y.low, _CMP_LT_OQ), a.low, b.low),
          select(_mm256_cmp_ps(x.high, y.high, _CMP_LT_OQ), a.high, b.high)};
}
FOREDRAFT_INLINE __m256 lanes_of_bits(uint32_t bits) {
  const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_castsi256_ps(
      _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), lane), lane));
}
FOREDRAFT_INLINE Floats select_bits(uint32_t bits, Floats a, Floats b) {
  return {select(lanes_of_bits(bits), a.low, b.low), select(lanes_of_bits(bits >> 8), a.high, b.high)};
}

FOREDRAFT_INLINE float sum(Floats a) {
  const __m256 eight = _mm256_add_ps(a.low, a.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
FOREDRAFT_INLINE Floats sums(const Floats (&a)[16]) {
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = sum(a[i]);
  return load(lanes);
}
FOREDRAFT_INLINE float largest(Floats a) {
  const __m256 eight = _mm256_max_ps(a.low, a.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

FOREDRAFT_INLINE Ints bits_of(Floats a) { return {_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)}; }
FOREDRAFT_INLINE Floats floats_of(Ints a) { return {_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)}; }
FOREDRAFT_INLINE Ints add(Ints a, Ints b) { return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)}; }
FOREDRAFT_INLINE Ints shift_left_23(Ints a) { return {_mm256_slli_epi32(a.low, 23), _mm256_slli_epi32(a.high, 23)}; }
FOREDRAFT_INLINE Floats to_floats(Ints a) { return {_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)}; }
FOREDRAFT_INLINE Ints to_nearest(Floats a) { return {_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)}; }
FOREDRAFT_INLINE int32_t sum(Ints a) {
  const __m256i eight = _mm256_add_epi32(a.low, a.high);
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
}
FOREDRAFT_INLINE void store_bytes(int8_t* p, Ints a) {  // in range, so that the saturating packs change nothing
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
FOREDRAFT_INLINE Floats load_halves(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
FOREDRAFT_INLINE void hold(Floats&) {}
FOREDRAFT_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

struct Codes {
  __m256i low, high;
};
// 8-bit codes are held less 128: the signed form that Dot<8> multiplies without saturating.
template <int BITS> FOREDRAFT_INLINE Codes load_codes(const uint8_t* p) {
  Codes c = {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
             _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
  if (BITS == 8) {
    const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x80));
    c = {_mm256_xor_si256(c.low, flip), _mm256_xor_si256(c.high, flip)};
  }
  return c;
}
FOREDRAFT_INLINE void split_nibbles(Codes both, Codes& low, Codes& high) {
  const __m256i nibble = _mm256_set1_epi8(15);
  low = {_mm256_and_si256(both.low, nibble), _mm256_and_si256(both.high, nibble)};
  high = {_mm256_and_si256(_mm256_srli_epi16(both.low, 4), nibble),
          _mm256_and_si256(_mm256_srli_epi16(both.high, 4), nibble)};
}

FOREDRAFT_INLINE __m256i broadcast4(const int8_t* a) {
  int32_t four;
  std::memcpy(&four, a, 4);
  return _mm256_set1_epi32(four);
}
FOREDRAFT_INLINE __m256i widen_pairs(__m256i words) { return _mm256_madd_epi16(words, _mm256_set1_epi16(1)); }

template <int BITS, bool CENTRED> struct Dot;

// |code| <= 15 and |a| <= 127: a whole block fits in 16 bits (16 * 15 * 127 = 30480).
template <bool CENTRED> struct Dot<4, CENTRED> {
  __m256i low, high, from;
  static FOREDRAFT_INLINE int32_t offset(int32_t total) { return CENTRED ? -(total << 3) : 0; }
  FOREDRAFT_INLINE void start(const int32_t* offset) {
    low = high = _mm256_setzero_si256();
    from = CENTRED ? _mm256_set1_epi32(*offset) : _mm256_setzero_si256();
  }
  FOREDRAFT_INLINE void add4(Codes c, const int8_t* a) {
    const __m256i four = broadcast4(a);
    low = _mm256_add_epi16(low, _mm256_maddubs_epi16(c.low, four));
    high = _mm256_add_epi16(high, _mm256_maddubs_epi16(c.high, four));
  }
  FOREDRAFT_INLINE Ints total() const {
    return {_mm256_add_epi32(from, widen_pairs(low)), _mm256_add_epi32(from, widen_pairs(high))};
  }
};

// c * a = |c| * (sign(c) a), and 2 * 128 * 127 = 32512 fits in 16 bits. What is summed is centred already.
template <bool CENTRED> struct Dot<8, CENTRED> {
  Ints partial;
  static FOREDRAFT_INLINE int32_t offset(int32_t total) { return CENTRED ? 0 : total << 7; }
  FOREDRAFT_INLINE void start(const int32_t* offset) {
    partial = {_mm256_set1_epi32(*offset), _mm256_set1_epi32(*offset)};
  }
  FOREDRAFT_INLINE void add4(Codes c, const int8_t* a) {
    const __m256i four = broadcast4(a);
    const __m256i low = _mm256_maddubs_epi16(_mm256_abs_epi8(c.low), _mm256_sign_epi8(four, c.low));
    const __m256i high = _mm256_maddubs_epi16(_mm256_abs_epi8(c.high), _mm256_sign_epi8(four, c.high));
    partial = {_mm256_add_epi32(partial.low, widen_pairs(low)), _mm256_add_epi32(partial.high, widen_pairs(high))};
  }
  FOREDRAFT_INLINE Ints total() const { return partial; }
};

}  // namespace
}  // namespace foredraft::avx2
