// foredraft::RMSNorm, AddRMSNorm and SwiGLU: operators over independent rows. Meaning: reference.py.
#include "native/kernels.h"
#include "onnxruntime/op.h"
#include "onnxruntime/operators.h"
#include "onnxruntime/parallel.h"

namespace foredraft {
namespace {

constexpr int64_t kNumbersPerRange = 16 << 10;  // some microseconds of work, enough to pay for a thread

struct Rows {
  ort::Shape shape;
  int64_t count, width;
};

Rows rows_of(const OrtValue* value, const char* name) {
  const ort::Shape shape = ort::shape_of(value);
  if (shape.rank == 0) throw std::runtime_error(std::string(name) + " is a scalar, expected rows [..., width]");
  return {shape, shape.rows(), shape[shape.rank - 1]};
}

// body(row) for every row, on several threads where there is enough work.
template <class Body> void for_rows(const ort::Context& context, const Rows& rows, const Body& body) {
  ort::parallel_ranges(context, rows.count, rows.count * rows.width / kNumbersPerRange,
                       [&](int64_t first, int64_t last) {
                         for (int64_t row = first; row < last; ++row) body(row);
                       });
}

class RMSNorm {
 public:
  static constexpr const char* kName = "RMSNorm";
  static constexpr ort::Slot kInputs[] = {{ort::kFloat}, {ort::kFloat}};
  static constexpr ort::Slot kOutputs[] = {{ort::kFloat}};

  explicit RMSNorm(const ort::Node& node) : epsilon_(node.real("epsilon")) {}

  void compute(const ort::Context& context) const {
    const Rows rows = rows_of(context.input(0), "x");
    ort::expect_shape(context.input(1), "weight", {rows.width});
    const auto *x = ort::data_of<float>(context.input(0)), *weight = ort::data_of<float>(context.input(1));
    float* out = context.output(0, rows.shape.dims, rows.shape.rank);
    for_rows(context, rows, [&](int64_t row) {
      const int64_t at = row * rows.width;
      kernels().rows.rms_norm(x + at, weight, epsilon_, rows.width, out + at);
    });
  }

 private:
  float epsilon_;
};

class AddRMSNorm {
 public:
  static constexpr const char* kName = "AddRMSNorm";
  static constexpr ort::Slot kInputs[] = {{ort::kFloat}, {ort::kFloat}, {ort::kFloat}};
  static constexpr ort::Slot kOutputs[] = {{ort::kFloat}, {ort::kFloat}};

  explicit AddRMSNorm(const ort::Node& node) : epsilon_(node.real("epsilon")) {}

  void compute(const ort::Context& context) const {
    const Rows rows = rows_of(context.input(0), "x");
    const Rows added = rows_of(context.input(1), "residual");
    if (added.count != rows.count || added.width != rows.width)
      throw std::runtime_error("residual has shape " + ort::describe(added.shape.dims, added.shape.rank) +
                               ", expected that of x, " + ort::describe(rows.shape.dims, rows.shape.rank));
    ort::expect_shape(context.input(2), "weight", {rows.width});
    const auto *x = ort::data_of<float>(context.input(0)), *residual = ort::data_of<float>(context.input(1)),
               *weight = ort::data_of<float>(context.input(2));
    float* out = context.output(0, rows.shape.dims, rows.shape.rank);
    float* total = context.output(1, rows.shape.dims, rows.shape.rank);
    for_rows(context, rows, [&](int64_t row) {
      const int64_t at = row * rows.width;
      kernels().rows.add_rms_norm(x + at, residual + at, weight, epsilon_, rows.width, out + at, total + at);
    });
  }

 private:
  float epsilon_;
};

class SwiGLU {
 public:
  static constexpr const char* kName = "SwiGLU";
  static constexpr ort::Slot kInputs[] = {{ort::kFloat}};
  static constexpr ort::Slot kOutputs[] = {{ort::kFloat}};

  explicit SwiGLU(const ort::Node&) {}

  void compute(const ort::Context& context) const {
    const Rows rows = rows_of(context.input(0), "gate_up");
    if (rows.width % 2 != 0)
      throw std::runtime_error("gate_up has width " + std::to_string(rows.width) + ", expected an even number");
    const auto* gate_up = ort::data_of<float>(context.input(0));
    const int64_t width = rows.width / 2;
    ort::Shape shape = rows.shape;
    shape.dims[shape.rank - 1] = width;
    float* out = context.output(0, shape.dims, shape.rank);
    for_rows(context, rows,
             [&](int64_t row) { kernels().rows.swiglu(gate_up + row * rows.width, width, out + row * width); });
  }
};

}  // namespace

OrtCustomOp rms_norm_op() { return ort::make_op<RMSNorm>(); }
OrtCustomOp add_rms_norm_op() { return ort::make_op<AddRMSNorm>(); }
OrtCustomOp swiglu_op() { return ort::make_op<SwiGLU>(); }

}  // namespace foredraft
