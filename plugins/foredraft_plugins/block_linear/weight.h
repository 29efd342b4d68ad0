// The packed weight of a node: attributes `bits`, `N`, `K` and the inputs codes, scale and (optional) min.
#pragma once

#include "block_linear/kernel.h"
#include "onnxruntime/tensor.h"

namespace foredraft {

// Knows the shapes; the data is fetched at each run. Inputs: `codes` at index 1, `scale` at 2, `min` at 3.
class WeightInputs {
 public:
  explicit WeightInputs(const ort::Node& node)
      : shape_{nullptr,           nullptr,           nullptr,
               node.integer("N"), node.integer("K"), static_cast<int>(node.integer("bits"))} {
    if (shape_.bits != 4 && shape_.bits != 8)
      throw std::runtime_error("bits is " + std::to_string(shape_.bits) + ", expected 4 or 8");
    if (shape_.n <= 0 || shape_.k <= 0 || shape_.k % kBlock != 0)
      throw std::runtime_error("N is " + std::to_string(shape_.n) + " and K is " + std::to_string(shape_.k) +
                               ", expected positive numbers and K a multiple of 32");
    const OrtValue *codes = node.constant(1), *scale = node.constant(2), *min = node.constant(3);
    checked_ = codes != nullptr && scale != nullptr && (min != nullptr || node.inputs() <= 3);
    if (checked_) check(codes, scale, min);
  }

  PackedWeight read(const ort::Context& context) const {
    const OrtValue *codes = context.input(1), *scale = context.input(2), *min = context.input(3);
    if (!checked_) check(codes, scale, min);
    PackedWeight weight = shape_;
    weight.codes = ort::data_of<uint8_t>(codes);
    weight.scale = ort::data_of<uint16_t>(scale);
    weight.min = min == nullptr ? nullptr : ort::data_of<uint16_t>(min);
    return weight;
  }

  int64_t n() const { return shape_.n; }
  int64_t k() const { return shape_.k; }

 private:
  void check(const OrtValue* codes, const OrtValue* scale, const OrtValue* min) const {
    ort::expect_shape(codes, "codes", {shape_.tiles(), shape_.blocks(), 4 * kTile * shape_.bits});
    ort::expect_shape(scale, "scale", {shape_.tiles(), shape_.blocks(), kTile});
    if (min != nullptr) ort::expect_shape(min, "min", {shape_.tiles(), shape_.blocks(), kTile});
  }

  PackedWeight shape_;
  bool checked_;  // once and for all, because the inputs are constants
};

}  // namespace foredraft
