// Gumbel-max sampling as a race: token i arrives at E_i * exp((best - logit_i) / temperature), with E_i = -log(u_i) of
// its own random number, and the first wins. 1 - u_i <= E_i costs no logarithm, and rules out nearly all tokens.
#pragma once

#include <cstdint>

namespace foredraft {

struct Race {
  const float* logits;  // [count], finite or -inf
  const int64_t* ids;   // [count], or null: 0, 1, 2, ...
  int64_t count;
  float best;  // the largest of the logits
  double temperature;
  uint64_t stream;  // where the random numbers of this position start (foredraft.sampling.noise)

  int64_t id(int64_t place) const { return ids == nullptr ? place : ids[place]; }
};

struct SamplingKernels {
  // Places of all tokens that can be among the first `winners` (at most 16), ascending, and of few others;
  // and their scores, which are minus the logarithms of their arrivals (-inf: never). Writes at most `capacity` of them,
  // and returns how many there are.
  int64_t (*contenders)(const Race& race, int64_t winners, int64_t* places, double* scores, int64_t capacity);
  // The least 1 - u, rounded down, of the tokens 0 .. vocab_size - 1 that are not in `ids` (ascending).
  float (*least_outside)(uint64_t stream, int64_t vocab_size, const int64_t* ids, int64_t count);
  // Places of the `k` largest logits, largest first, of equal ones the lowest; returns how many there are.
  int64_t (*top)(const float* logits, int64_t count, int64_t k, int64_t* places);
  // Sum of exp(logit - best).
  double (*total)(const float* logits, int64_t count, float best);
};

}  // namespace foredraft
