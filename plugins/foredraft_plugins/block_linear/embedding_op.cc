// foredraft::BlockEmbedding(tokens i32[T], codes, scale, min?) -> f32[T, K]: rows of a packed weight, as numbers.
#include "block_linear/weight.h"
#include "native/kernels.h"
#include "onnxruntime/op.h"
#include "onnxruntime/operators.h"

namespace foredraft {
namespace {

class BlockEmbedding {
 public:
  static constexpr const char* kName = "BlockEmbedding";
  static constexpr ort::Slot kInputs[] = {
      {ort::kInt32}, {ort::kUint8}, {ort::kFloat16}, {ort::kFloat16, ort::kOptional}};
  static constexpr ort::Slot kOutputs[] = {{ort::kFloat}};

  explicit BlockEmbedding(const ort::Node& node) : inputs_(node) {}

  void compute(const ort::Context& context) const {
    const int64_t count = ort::expect_shape(context.input(0), "tokens", {ort::kAny})[0];
    const auto* tokens = ort::data_of<int32_t>(context.input(0));
    for (int64_t t = 0; t < count; ++t)
      if (tokens[t] < 0 || tokens[t] >= inputs_.n())
        throw std::runtime_error("tokens[" + std::to_string(t) + "] is " + std::to_string(tokens[t]) +
                                 ", the vocabulary has " + std::to_string(inputs_.n()) + " tokens");
    const PackedWeight weight = inputs_.read(context);
    float* out = context.output(0, {count, weight.k});
    for (int64_t t = 0; t < count; ++t) kernels().block_linear.unpack_row(weight, tokens[t], out + t * weight.k);
  }

 private:
  WeightInputs inputs_;
};

}  // namespace

OrtCustomOp block_embedding_op() { return ort::make_op<BlockEmbedding>(); }

}  // namespace foredraft
