// Sixteen lanes in plain C++: the portable instruction set, and the meaning of the others.
//
// Every instruction set offers exactly these names, and every lane computes exactly this. The kernels are written once
// against them, which is why all instruction sets give the same bits.
#include <cmath>
#include <cstdint>
#include <cstring>

#define FOREDRAFT_INLINE inline __attribute__((always_inline))

namespace foredraft::scalar {
namespace {

constexpr int kLinearRows = 4;  // rows of activations per pass over quantized weights
constexpr int kDotRows = 4;     // of which so many, and so many halves of 16 columns, at once
constexpr int kDotHalves = 1;
constexpr int kDenseRows = 2;  // rows x columns of outputs per pass over fp32 weights
constexpr int kDenseColumns = 2;
constexpr int kAttentionRows = 2;  // query rows x 16-lane vectors per pass over keys or values
constexpr int kAttentionVectors = 2;

struct Floats {
  float lane[16];
};
struct Ints {
  int32_t lane[16];
};

#define FOREDRAFT_LANES for (int i = 0; i < 16; ++i)

FOREDRAFT_INLINE Floats set1(float x) {
  Floats r;
  FOREDRAFT_LANES r.lane[i] = x;
  return r;
}
FOREDRAFT_INLINE Floats zeros() { return set1(0.0f); }
FOREDRAFT_INLINE Floats load(const float* p) {
  Floats r;
  std::memcpy(r.lane, p, sizeof r.lane);
  return r;
}
FOREDRAFT_INLINE void store(float* p, Floats a) { std::memcpy(p, a.lane, sizeof a.lane); }
// The first `count` (0..16) lanes; the others are 0, and are not stored.
FOREDRAFT_INLINE Floats load_first(const float* p, int count) {
  Floats r = zeros();
  for (int i = 0; i < count; ++i) r.lane[i] = p[i];
  return r;
}
FOREDRAFT_INLINE void store_first(float* p, Floats a, int count) {
  for (int i = 0; i < count; ++i) p[i] = a.lane[i];
}

FOREDRAFT_INLINE Floats add(Floats a, Floats b) {
  FOREDRAFT_LANES a.lane[i] += b.lane[i];
  return a;
}
FOREDRAFT_INLINE Floats subtract(Floats a, Floats b) {
  FOREDRAFT_LANES a.lane[i] -= b.lane[i];
  return a;
}
FOREDRAFT_INLINE Floats multiply(Floats a, Floats b) {
  FOREDRAFT_LANES a.lane[i] *= b.lane[i];
  return a;
}
FOREDRAFT_INLINE Floats divide(Floats a, Floats b) {
  FOREDRAFT_LANES a.lane[i] /= b.lane[i];
  return a;
}
// a * b + c, rounded once.
FOREDRAFT_INLINE Floats fma(Floats a, Floats b, Floats c) {
  FOREDRAFT_LANES c.lane[i] = __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]);
  return c;
}
FOREDRAFT_INLINE Floats maximum(Floats a, Floats b) {
  FOREDRAFT_LANES a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
FOREDRAFT_INLINE Floats minimum(Floats a, Floats b) {
  FOREDRAFT_LANES a.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
FOREDRAFT_INLINE Floats absolute(Floats a) {
  FOREDRAFT_LANES a.lane[i] = __builtin_fabsf(a.lane[i]);
  return a;
}
// x < y ? a : b
FOREDRAFT_INLINE Floats select_less(Floats x, Floats y, Floats a, Floats b) {
  FOREDRAFT_LANES a.lane[i] = x.lane[i] < y.lane[i] ? a.lane[i] : b.lane[i];
  return a;
}
// Lane i of a where bit i is set, else of b.
FOREDRAFT_INLINE Floats select_bits(uint32_t bits, Floats a, Floats b) {
  FOREDRAFT_LANES a.lane[i] = (bits >> i) & 1 ? a.lane[i] : b.lane[i];
  return a;
}

// The sum of all lanes, halves first: (i, i + 8), then (i, i + 4), (i, i + 2), (i, i + 1).
FOREDRAFT_INLINE float sum(Floats a) {
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a.lane[i] += a.lane[i + half];
  return a.lane[0];
}
// Lane i is the sum of a[i].
FOREDRAFT_INLINE Floats sums(const Floats (&a)[16]) {
  float lanes[16];
  for (int i = 0; i < 16; ++i) lanes[i] = sum(a[i]);
  return load(lanes);
}
FOREDRAFT_INLINE float largest(Floats a) {
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) a.lane[i] = a.lane[i] > a.lane[i + half] ? a.lane[i] : a.lane[i + half];
  return a.lane[0];
}

FOREDRAFT_INLINE Ints bits_of(Floats a) {
  Ints r;
  std::memcpy(&r, &a, sizeof r);
  return r;
}
FOREDRAFT_INLINE Floats floats_of(Ints a) {
  Floats r;
  std::memcpy(&r, &a, sizeof r);
  return r;
}
FOREDRAFT_INLINE Ints add(Ints a, Ints b) {
  FOREDRAFT_LANES a.lane[i] += b.lane[i];
  return a;
}
FOREDRAFT_INLINE Ints shift_left_23(Ints a) {
  FOREDRAFT_LANES a.lane[i] = static_cast<int32_t>(static_cast<uint32_t>(a.lane[i]) << 23);
  return a;
}
FOREDRAFT_INLINE Floats to_floats(Ints a) {
  Floats r;
  FOREDRAFT_LANES r.lane[i] = static_cast<float>(a.lane[i]);
  return r;
}
// Nearest integer, ties to even, of |a| < 2^22.
FOREDRAFT_INLINE Ints to_nearest(Floats a) {
  Ints r = bits_of(add(a, set1(12582912.0f)));
  FOREDRAFT_LANES r.lane[i] -= 0x4b400000;
  return r;
}
FOREDRAFT_INLINE int32_t sum(Ints a) {
  int32_t total = 0;
  FOREDRAFT_LANES total += a.lane[i];
  return total;
}
FOREDRAFT_INLINE void store_bytes(int8_t* p, Ints a) { FOREDRAFT_LANES p[i] = static_cast<int8_t>(a.lane[i]); }

FOREDRAFT_INLINE float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 31;
  const uint32_t mantissa = half & 1023;
  uint32_t word;
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24, exact
    const float magnitude = static_cast<float>(mantissa) * 5.9604644775390625e-8f;
    std::memcpy(&word, &magnitude, 4);
  } else {
    word = (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | (mantissa << 13);
  }
  word |= sign;
  float result;
  std::memcpy(&result, &word, 4);
  return result;
}
FOREDRAFT_INLINE Floats load_halves(const uint16_t* p) {
  Floats r;
  FOREDRAFT_LANES r.lane[i] = half_to_float(p[i]);
  return r;
}
// Loads `a` once, into a register, where the compiler would rather read memory at every use.
FOREDRAFT_INLINE void hold(Floats&) {}
FOREDRAFT_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }

// 64 weight codes: 4 consecutive k for each of 16 columns.
struct Codes {
  uint8_t byte[64];
};
template <int BITS> FOREDRAFT_INLINE Codes load_codes(const uint8_t* p) {
  Codes c;
  std::memcpy(c.byte, p, 64);
  return c;
}
FOREDRAFT_INLINE void split_nibbles(Codes both, Codes& low, Codes& high) {
  for (int i = 0; i < 64; ++i) {
    low.byte[i] = both.byte[i] & 15;
    high.byte[i] = both.byte[i] >> 4;
  }
}

// Integer dot products of one row's 32 activations with 32 codes of each of 16 columns, four k at a time. The result
// is sum(code * a), or with CENTRED sum((code - 2^(BITS-1)) * a).
template <int BITS, bool CENTRED> struct Dot {
  Ints partial;
  // What the dot starts from, given the sum of the 32 activations.
  static FOREDRAFT_INLINE int32_t offset(int32_t total) { return CENTRED ? -(total << (BITS - 1)) : 0; }
  FOREDRAFT_INLINE void start(const int32_t* offset) { FOREDRAFT_LANES partial.lane[i] = *offset; }
  FOREDRAFT_INLINE void add4(const Codes& c, const int8_t* a) {
    FOREDRAFT_LANES for (int k = 0; k < 4; ++k) partial.lane[i] += static_cast<int32_t>(c.byte[4 * i + k]) * a[k];
  }
  FOREDRAFT_INLINE Ints total() const { return partial; }
};

#undef FOREDRAFT_LANES
}  // namespace
}  // namespace foredraft::scalar
