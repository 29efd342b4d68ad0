#include "native/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "native/target.h"
#include "onnxruntime/scratch.h"

FOREDRAFT_TARGET_BEGIN("avx2,fma,f16c")
#include "native/simd/avx2.h"
#define FOREDRAFT_SIMD avx2
#define FOREDRAFT_TABLE kAvx2Kernels
#define FOREDRAFT_NAME "avx2"
#include "native/kernels.inc"
FOREDRAFT_TARGET_END
#endif
