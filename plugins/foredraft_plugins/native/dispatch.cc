// Chooses the instruction set once per process.
#include <cstdlib>
#include <cstring>

#include "native/kernels.h"

namespace foredraft {
namespace {

struct Candidate {
  const Kernels* kernels;
  bool supported;
};

Choice choose() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni");
  const Candidate best_first[] = {{&kAvx512Kernels, avx512}, {&kAvx2Kernels, avx2}, {&kScalarKernels, true}};
#else
  const Candidate best_first[] = {{&kScalarKernels, true}};
#endif
  const char* wanted = std::getenv("FOREDRAFT_ISA");
  bool known = wanted == nullptr || *wanted == '\0';
  for (const Candidate& candidate : best_first) {
    known = known || std::strcmp(wanted, candidate.kernels->instruction_set) == 0;
    if (known && candidate.supported) return {candidate.kernels, ""};
  }
  return {nullptr, "FOREDRAFT_ISA is '" + std::string(wanted) + "', expected avx512-vnni, avx2 or scalar"};
}

}  // namespace

const Choice& chosen() {
  static const Choice choice = choose();
  return choice;
}

}  // namespace foredraft

// For library.py: the name of the instruction set in use, or null, and why.
extern "C" __attribute__((visibility("default"))) const char* foredraft_instruction_set() {
  const foredraft::Kernels* kernels = foredraft::chosen().kernels;
  return kernels == nullptr ? nullptr : kernels->instruction_set;
}
extern "C" __attribute__((visibility("default"))) const char* foredraft_error() {
  return foredraft::chosen().error.c_str();
}
