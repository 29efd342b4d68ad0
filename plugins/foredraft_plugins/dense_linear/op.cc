// foredraft::DenseLinear(x f32[..., K], w f32[N, K]) -> f32[..., N]: x times the transpose of w, in fp32.
#include "native/kernels.h"
#include "onnxruntime/op.h"
#include "onnxruntime/operators.h"
#include "onnxruntime/parallel.h"

namespace foredraft {
namespace {

constexpr int64_t kColumnsPerUnit = 4;        // a multiple of the columns of a kernel's pass
constexpr int64_t kBytesPerRange = 64 << 10;  // of weights: some microseconds of work, enough to pay for a thread
constexpr int64_t kMostRanges = 256;

class DenseLinear {
 public:
  static constexpr const char* kName = "DenseLinear";
  static constexpr ort::Slot kInputs[] = {{ort::kFloat}, {ort::kFloat}};
  static constexpr ort::Slot kOutputs[] = {{ort::kFloat}};

  explicit DenseLinear(const ort::Node&) {}

  void compute(const ort::Context& context) const {
    const OrtValue *input = context.input(0), *weight = context.input(1);
    const ort::Shape w = ort::expect_shape(weight, "w", {ort::kAny, ort::kAny});
    ort::Shape shape = ort::shape_of(input);
    const int64_t n = w[0], k = w[1];
    if (shape.rank == 0 || shape[shape.rank - 1] != k)
      throw std::runtime_error("x has shape " + ort::describe(shape.dims, shape.rank) + ", expected [any, " +
                               std::to_string(k) + "]");
    const int64_t rows = shape.rows();
    shape.dims[shape.rank - 1] = n;
    float* y = context.output(0, shape.dims, shape.rank);
    const float *x = ort::data_of<float>(input), *values = ort::data_of<float>(weight);
    const int64_t units = (n + kColumnsPerUnit - 1) / kColumnsPerUnit;
    ort::parallel_ranges(context, rows == 0 ? 0 : units, std::min(n * k * 4 / kBytesPerRange, kMostRanges),
                         [&](int64_t first, int64_t last) {
                           kernels().dense_linear(x, values, rows, n, k, first * kColumnsPerUnit,
                                                  std::min(last * kColumnsPerUnit, n), y);
                         });
  }
};

}  // namespace

OrtCustomOp dense_linear_op() { return ort::make_op<DenseLinear>(); }

}  // namespace foredraft
