// What Python calls (calls.py). All pointers are to arrays that the caller keeps.
#include <cstdint>

#include "native/kernels.h"

#define FOREDRAFT_API extern "C" __attribute__((visibility("default")))

FOREDRAFT_API int64_t foredraft_contenders(const float* logits, const int64_t* ids, int64_t count, float best,
                                           double temperature, uint64_t stream, int64_t winners, int64_t* places,
                                           double* scores, int64_t capacity) {
  return foredraft::kernels().sampling.contenders({logits, ids, count, best, temperature, stream}, winners, places,
                                                  scores, capacity);
}

FOREDRAFT_API float foredraft_least_outside(uint64_t stream, int64_t vocab_size, const int64_t* ids, int64_t count) {
  return foredraft::kernels().sampling.least_outside(stream, vocab_size, ids, count);
}

FOREDRAFT_API int64_t foredraft_top(const float* logits, int64_t count, int64_t k, int64_t* places) {
  return foredraft::kernels().sampling.top(logits, count, k, places);
}

FOREDRAFT_API double foredraft_total(const float* logits, int64_t count, float best) {
  return foredraft::kernels().sampling.total(logits, count, best);
}
