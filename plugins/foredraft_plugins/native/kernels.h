// The table of kernels of one instruction set, and the choice of the table for this CPU.
#pragma once

#include <string>

#include "block_linear/kernel.h"
#include "dense_linear/kernel.h"
#include "rows/kernel.h"
#include "sampling/kernel.h"
#include "tree_attention/kernel.h"

namespace foredraft {

struct Kernels {
  const char* instruction_set;
  BlockLinearKernels block_linear;
  DenseLinearKernel dense_linear;
  RowKernels rows;
  SamplingKernels sampling;
  TreeAttentionKernels tree_attention;
};

extern const Kernels kScalarKernels;
#if defined(__x86_64__)
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
#endif

struct Choice {
  const Kernels* kernels;  // null if FOREDRAFT_ISA is not a known name
  std::string error;
};

// Chosen once per process: the best that the CPU has, or a lower one that the environment variable FOREDRAFT_ISA names.
const Choice& chosen();

inline const Kernels& kernels() { return *chosen().kernels; }

}  // namespace foredraft
