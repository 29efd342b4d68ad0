// foredraft::BlockLinear(x f32[..., K], codes, scale, min?) -> f32[..., N]. Meaning: reference.py.
#include "block_linear/weight.h"
#include "native/kernels.h"
#include "onnxruntime/op.h"
#include "onnxruntime/operators.h"
#include "onnxruntime/parallel.h"
#include "onnxruntime/scratch.h"

namespace foredraft {
namespace {

constexpr int64_t kBytesPerRange = 24 << 10;  // of weights: some microseconds of work, enough to pay for a thread
constexpr int64_t kMostRanges = 256;
constexpr int64_t kRowsPerPass = 256;  // rows whose rounded activations stay in a core's own cache
constexpr int64_t kRowsToShare = 32;   // from here on, rounding is worth spreading over threads

RoundedRows reserve_rows(Scratch& scratch, int64_t rows, int64_t k) {
  const int64_t blocks = k / kBlock;
  auto* memory = static_cast<int8_t*>(scratch.reserve(static_cast<size_t>(rows * (k + 12 * blocks))));
  auto* scale = reinterpret_cast<float*>(memory + rows * k);
  return {memory, scale, scale + rows * blocks, reinterpret_cast<int32_t*>(scale + 2 * rows * blocks), rows};
}

class BlockLinear {
 public:
  static constexpr const char* kName = "BlockLinear";
  static constexpr ort::Slot kInputs[] = {
      {ort::kFloat}, {ort::kUint8}, {ort::kFloat16}, {ort::kFloat16, ort::kOptional}};
  static constexpr ort::Slot kOutputs[] = {{ort::kFloat}};

  explicit BlockLinear(const ort::Node& node) : inputs_(node) {}

  void compute(const ort::Context& context) const {
    const OrtValue* input = context.input(0);
    ort::Shape shape = ort::shape_of(input);
    if (shape.rank == 0 || shape[shape.rank - 1] != inputs_.k())
      throw std::runtime_error("x has shape " + ort::describe(shape.dims, shape.rank) + ", expected [any, " +
                               std::to_string(inputs_.k()) + "]");
    const int64_t rows = shape.rows();
    shape.dims[shape.rank - 1] = inputs_.n();
    float* y = context.output(0, shape.dims, shape.rank);
    const float* x = ort::data_of<float>(input);
    const PackedWeight weight = inputs_.read(context);
    for (int64_t row = 0; row < rows; row += kRowsPerPass)
      pass(context, weight, x + row * weight.k, std::min(kRowsPerPass, rows - row), y + row * weight.n);
  }

 private:
  static void pass(const ort::Context& context, const PackedWeight& weight, const float* x, int64_t rows, float* y) {
    static thread_local Scratch scratch;
    const BlockLinearKernels& kernel = kernels().block_linear;
    const RoundedRows rounded = reserve_rows(scratch, rows, weight.k);
    const int64_t groups = (rows + kernel.rows_per_group - 1) / kernel.rows_per_group;
    ort::parallel_ranges(context, groups, rows / kRowsToShare, [&](int64_t first, int64_t last) {
      for (int64_t g = first; g < last; ++g) kernel.round_group(x, weight, g * kernel.rows_per_group, rounded);
    });
    const int64_t bytes = weight.tiles() * weight.blocks() * 4 * kTile * weight.bits;
    ort::parallel_ranges(context, weight.tiles(), std::min(bytes / kBytesPerRange, kMostRanges),
                         [&](int64_t first, int64_t last) { kernel.block_linear(rounded, weight, first, last, y); });
  }

  WeightInputs inputs_;
};

}  // namespace

OrtCustomOp block_linear_op() { return ort::make_op<BlockLinear>(); }

}  // namespace foredraft
