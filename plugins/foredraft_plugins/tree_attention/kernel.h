// What the TreeAttention kernels take.
//
// The cache is two graph inputs that the operator updates IN PLACE: it writes through the pointers of `key` and `value`
// (the runtime binds its own buffers to them, so nothing is copied). This is the one place where an operator changes an
// input.
#pragma once

#include <cstdint>

namespace foredraft {

constexpr int64_t kSlotsPerBlock = 16;  // slots whose keys are interleaved

struct TreeAttentionShape {
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;    // multiple of 16
  int64_t rotary_dim;  // even, 0 = no rotation
  float scale;

  int64_t heads_per_kv_head() const { return heads / kv_heads; }
  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
};

struct TreeAttentionInputs {
  const float* qkv;          // [T, qkv_width]: queries, keys, values
  float* key;                // [kv_heads, S / 16, head_dim, 16]
  float* value;              // [kv_heads, S, head_dim]
  const int32_t* slots;      // [T]
  const int32_t* positions;  // [T]
  const int32_t* mask;       // [T, mask_words]
  const int32_t* reach;      // [T], one past the highest slot that the token sees
  const float* cos;          // [C, rotary_dim / 2]
  const float* sin;
  int64_t n_past;
  int64_t mask_words;
  int64_t cache_slots;  // S
};

// Blocks of 16 slots that tokens [first, last) have to look at.
inline int64_t blocks_in_reach(const TreeAttentionInputs& in, int64_t first, int64_t last) {
  int64_t reach = 0;
  for (int64_t t = first; t < last; ++t) reach = in.reach[t] > reach ? in.reach[t] : reach;
  return (reach + kSlotsPerBlock - 1) / kSlotsPerBlock;
}

// Floats that attend() works with, for each row (a token and a head): its query, its result, its scores, its sums of
// weights.
inline int64_t attend_scratch(const TreeAttentionShape& shape, const TreeAttentionInputs& in, int64_t first,
                              int64_t last) {
  const int64_t rows = (last - first) * shape.heads_per_kv_head();
  return rows * (2 * shape.head_dim + blocks_in_reach(in, first, last) * kSlotsPerBlock + 1);
}

struct TreeAttentionKernels {
  // Rotates the keys of tokens [first, last) and writes their keys and values to their slots.
  void (*write_cache)(const TreeAttentionShape& shape, const TreeAttentionInputs& in, int64_t first, int64_t last);
  // Attends with all heads of one kv head for tokens [first, last); out is [T, heads * head_dim].
  void (*attend)(const TreeAttentionShape& shape, const TreeAttentionInputs& in, int64_t kv_head, int64_t first,
                 int64_t last, float* scratch, float* out);
};

}  // namespace foredraft
