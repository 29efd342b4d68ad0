// What the DenseLinear kernel takes.
#pragma once

#include <cstdint>

namespace foredraft {

// y[:, first_column:last_column] of y [T, N] = x [T, K] times the transpose of w [N, K].
using DenseLinearKernel = void (*)(const float* x, const float* w, int64_t t, int64_t n, int64_t k,
                                   int64_t first_column, int64_t last_column, float* y);

}  // namespace foredraft
