// What the BlockLinear kernels take: packed weights (layout: packing.py) and rounded activations.
#pragma once

#include <cstdint>

namespace foredraft {

constexpr int64_t kBlock = 32;  // weights, and activations, that share one scale
constexpr int64_t kTile = 32;   // columns of the output that are packed side by side,
constexpr int kHalves = 2;      // in halves of 16

struct PackedWeight {
  const uint8_t* codes;   // [tiles, K / 32, 128 * bits]
  const uint16_t* scale;  // fp16 [tiles, K / 32, 32]
  const uint16_t* min;    // fp16 [tiles, K / 32, 32], or null: -2^(bits-1) * scale
  int64_t n;              // columns of the output (tiles = ceil(n / 32))
  int64_t k;
  int bits;  // 4 or 8

  int64_t tiles() const { return (n + kTile - 1) / kTile; }
  int64_t blocks() const { return k / kBlock; }
};

// Activations rounded to 8 bits, in groups of at most BlockLinearKernels::rows_per_group rows. A group of R rows is
// laid out [K / 32][R], so that the kernel reads it front to back; group g starts at row g * rows_per_group.
struct RoundedRows {
  int8_t* codes;    // [rows * K]
  float* scale;     // [rows * K / 32], absmax / 127
  float* sum;       // [rows * K / 32], scale * (sum of the 32 codes): what `min` is multiplied with
  int32_t* offset;  // [rows * K / 32], where the integer dot product starts
  int64_t rows;
};

struct BlockLinearKernels {
  int64_t rows_per_group;
  // Rounds the group that starts at `first_row` of x [rows, K].
  void (*round_group)(const float* x, const PackedWeight& weight, int64_t first_row, const RoundedRows& out);
  // y[:, 32 * first_tile : 32 * last_tile] of y [rows, N].
  void (*block_linear)(const RoundedRows& x, const PackedWeight& weight, int64_t first_tile, int64_t last_tile,
                       float* y);
  // Row `row` of the weight as numbers: out [K].
  void (*unpack_row)(const PackedWeight& weight, int64_t row, float* out);
};

}  // namespace foredraft
