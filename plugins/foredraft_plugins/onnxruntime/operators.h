// The operators that register.cc offers to onnxruntime, each made in the folder of its kernel.
#pragma once

#include "onnxruntime/ort_abi.h"

namespace foredraft {

OrtCustomOp block_linear_op();
OrtCustomOp block_embedding_op();
OrtCustomOp dense_linear_op();
OrtCustomOp tree_attention_op();
OrtCustomOp rms_norm_op();
OrtCustomOp add_rms_norm_op();
OrtCustomOp swiglu_op();

}  // namespace foredraft
