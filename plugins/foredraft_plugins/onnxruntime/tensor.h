// Tensors and attributes of a node, with errors as exceptions (the ABI wall in op.h turns them into an OrtStatus).
#pragma once

#include <initializer_list>
#include <stdexcept>
#include <string>

#include "onnxruntime/ort_abi.h"

namespace foredraft::ort {

inline void check(OrtStatus* status) {
  if (status == nullptr) return;
  const std::string message = error_message(status);
  release_status(status);
  throw std::runtime_error(message);
}

struct Shape {
  static constexpr size_t kMaxRank = 8;
  int64_t dims[kMaxRank];
  size_t rank = 0;

  int64_t operator[](size_t i) const { return dims[i]; }
  // The number of rows of all but the last dimension.
  int64_t rows() const {
    int64_t product = 1;
    for (size_t i = 0; i + 1 < rank; ++i) product *= dims[i];
    return product;
  }
};

constexpr int64_t kAny = -1;

inline std::string describe(const int64_t* dims, size_t rank) {
  std::string text = "[";
  for (size_t i = 0; i < rank; ++i) text += (i ? ", " : "") + (dims[i] == kAny ? "any" : std::to_string(dims[i]));
  return text + "]";
}

inline Shape shape_of(const OrtValue* value) {
  OrtTensorTypeAndShapeInfo* info = nullptr;
  check(shape_info(value, &info));
  Shape shape;
  OrtStatus* status = rank(info, &shape.rank);
  const bool fits = shape.rank <= Shape::kMaxRank;
  if (status == nullptr && fits) status = dimensions(info, shape.dims, shape.rank);
  release_shape_info(info);
  check(status);
  if (!fits)
    throw std::runtime_error("a tensor has " + std::to_string(shape.rank) + " dimensions, at most 8 are allowed");
  return shape;
}

// The shape of `value`, which must be `expected` where that is not kAny.
inline Shape expect_shape(const OrtValue* value, const char* name, std::initializer_list<int64_t> expected) {
  const Shape shape = shape_of(value);
  bool equal = shape.rank == expected.size();
  for (size_t i = 0; equal && i < shape.rank; ++i)
    equal = expected.begin()[i] == kAny || expected.begin()[i] == shape[i];
  if (!equal)
    throw std::runtime_error(std::string(name) + " has shape " + describe(shape.dims, shape.rank) + ", expected " +
                             describe(expected.begin(), expected.size()));
  return shape;
}

template <class T> T* data_of(const OrtValue* value) {
  void* data = nullptr;
  check(tensor_data(const_cast<OrtValue*>(value), &data));
  return static_cast<T*>(data);
}

// A node when its kernel is created.
struct Node {
  const OrtKernelInfo* info;

  int64_t integer(const char* name) const {
    int64_t value = 0;
    check(int_attribute(info, name, &value));
    return value;
  }
  float real(const char* name) const {
    float value = 0;
    check(float_attribute(info, name, &value));
    return value;
  }
  size_t inputs() const {
    size_t count = 0;
    check(input_count(info, &count));
    return count;
  }
  // The input if it is an initializer, else null.
  const OrtValue* constant(size_t index) const {
    if (index >= inputs()) return nullptr;
    int is_constant = 0;
    const OrtValue* value = nullptr;
    check(constant_input(info, index, &is_constant, &value));
    return is_constant ? value : nullptr;
  }
};

// One run of a node.
struct Context {
  OrtKernelContext* context;

  // Null if the input is optional and absent.
  const OrtValue* input(size_t index) const {
    const OrtValue* value = nullptr;
    check(ort::input(context, index, &value));
    return value;
  }
  float* output(size_t index, const int64_t* dims, size_t rank) const {
    OrtValue* value = nullptr;
    check(ort::output(context, index, dims, rank, &value));
    return data_of<float>(value);
  }
  float* output(size_t index, std::initializer_list<int64_t> dims) const {
    return output(index, dims.begin(), dims.size());
  }
};

}  // namespace foredraft::ort
