// Parallel loops on the thread pool of the onnxruntime session that runs the node, so that the number of threads is
// SessionOptions.intra_op_num_threads and no second pool competes for the cores. With one thread the loop runs inline.
#pragma once

#include <algorithm>
#include <atomic>
#include <new>

#include "onnxruntime/tensor.h"

namespace foredraft::ort {

// body(i) for i in [0, count), in any order, on any of the session's threads.
template <class Body> void parallel_for(const Context& context, int64_t count, const Body& body) {
  if (count == 1) return body(0);
  if (count <= 0) return;
  struct Shared {
    const Body& body;
    std::atomic<bool> failed;
  } shared{body, {false}};
  const auto step = [](void* data, size_t i) {
    Shared& loop = *static_cast<Shared*>(data);
    try {
      loop.body(static_cast<int64_t>(i));
    } catch (...) {  // only scratch memory can fail; an exception must not pass through onnxruntime
      loop.failed = true;
    }
  };
  check(parallel_for(context.context, step, static_cast<size_t>(count), 0, &shared));
  if (shared.failed) throw std::bad_alloc();
}

// body(first, last) over [0, count) in `pieces` ranges of almost equal length.
template <class Body> void parallel_ranges(const Context& context, int64_t count, int64_t pieces, const Body& body) {
  const int64_t ranges = std::clamp<int64_t>(pieces, 1, std::max<int64_t>(count, 1));
  parallel_for(context, ranges, [&](int64_t i) { body(count * i / ranges, count * (i + 1) / ranges); });
}

}  // namespace foredraft::ort
