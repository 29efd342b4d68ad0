#include "native/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "native/target.h"
#include "onnxruntime/scratch.h"

FOREDRAFT_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")
#include "native/simd/avx512.h"
#define FOREDRAFT_SIMD avx512
#define FOREDRAFT_TABLE kAvx512Kernels
#define FOREDRAFT_NAME "avx512-vnni"
#include "native/kernels.inc"
FOREDRAFT_TARGET_END
#endif
