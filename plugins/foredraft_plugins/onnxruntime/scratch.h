// Working memory that a thread keeps from one node to the next: operators hold no state of their own, so a session may
// run on several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace foredraft {

// One per use and thread: `static thread_local Scratch scratch;`.
class Scratch {
 public:
  // `bytes` of memory aligned to a cache line, with what was there before undefined.
  void* reserve(size_t bytes) {
    if (bytes > capacity_) {
      memory_.reset();
      capacity_ = 0;
      memory_.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
      capacity_ = bytes;
    }
    return memory_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  size_t capacity_ = 0;
};

}  // namespace foredraft
