#include "native/kernels.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "native/simd/scalar.h"
#include "onnxruntime/scratch.h"
#define FOREDRAFT_SIMD scalar
#define FOREDRAFT_TABLE kScalarKernels
#define FOREDRAFT_NAME "scalar"
#include "native/kernels.inc"
