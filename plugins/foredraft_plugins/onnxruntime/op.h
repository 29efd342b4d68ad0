// From a C++ class to an OrtCustomOp, and the wall that no exception passes.
//
// An operator is a class with
//     static constexpr const char* kName;
//     static constexpr Slot kInputs[], kOutputs[];
//     explicit Operator(const ort::Node&);         checks attributes and constant inputs
//     void compute(const ort::Context&) const;     may run on several threads at once
#pragma once

#include <exception>
#include <iterator>

#include "onnxruntime/tensor.h"

namespace foredraft::ort {

struct Slot {
  int type;
  int characteristic = kRequired;
};

template <class Action> OrtStatus* guarded(const Action& action) {
  try {
    action();
    return nullptr;
  } catch (const std::exception& error) {
    return create_status(kInvalidArgument, error.what());
  } catch (...) {
    return create_status(kInvalidArgument, "unknown error");
  }
}

template <class Operator> OrtCustomOp make_op() {
  OrtCustomOp op{};
  op.version = kApiVersion;
  op.GetName = [](const OrtCustomOp*) { return Operator::kName; };
  op.GetExecutionProviderType = [](const OrtCustomOp*) -> const char* { return nullptr; };
  op.GetInputType = [](const OrtCustomOp*, size_t i) { return Operator::kInputs[i].type; };
  op.GetInputTypeCount = [](const OrtCustomOp*) { return std::size(Operator::kInputs); };
  op.GetOutputType = [](const OrtCustomOp*, size_t i) { return Operator::kOutputs[i].type; };
  op.GetOutputTypeCount = [](const OrtCustomOp*) { return std::size(Operator::kOutputs); };
  op.GetInputCharacteristic = [](const OrtCustomOp*, size_t i) { return Operator::kInputs[i].characteristic; };
  op.GetOutputCharacteristic = [](const OrtCustomOp*, size_t i) { return Operator::kOutputs[i].characteristic; };
  op.GetInputMemoryType = [](const OrtCustomOp*, size_t) { return 0; };
  op.GetVariadicInputMinArity = [](const OrtCustomOp*) { return 1; };
  op.GetVariadicInputHomogeneity = [](const OrtCustomOp*) { return 1; };
  op.GetVariadicOutputMinArity = [](const OrtCustomOp*) { return 1; };
  op.GetVariadicOutputHomogeneity = [](const OrtCustomOp*) { return 1; };
  op.CreateKernelV2 = [](const OrtCustomOp*, const OrtApi*, const OrtKernelInfo* info, void** kernel) {
    return guarded([&] { *kernel = new Operator(Node{info}); });
  };
  op.KernelComputeV2 = [](void* kernel, OrtKernelContext* context) {
    return guarded([&] { static_cast<const Operator*>(kernel)->compute(Context{context}); });
  };
  op.KernelDestroy = [](void* kernel) { delete static_cast<Operator*>(kernel); };
  return op;
}

}  // namespace foredraft::ort
