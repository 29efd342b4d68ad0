// What the kernels over independent rows take.
#pragma once

#include <cstdint>

namespace foredraft {

struct RowKernels {
  // out [width] = x / sqrt(mean(x^2) + epsilon) * weight
  void (*rms_norm)(const float* x, const float* weight, float epsilon, int64_t width, float* out);
  // total [width] = x + residual, out [width] = rms_norm(total)
  void (*add_rms_norm)(const float* x, const float* residual, const float* weight, float epsilon, int64_t width,
                       float* out, float* total);
  // out [width] = silu(gate_up[:width]) * gate_up[width:]
  void (*swiglu)(const float* gate_up, int64_t width, float* out);
};

}  // namespace foredraft
