// The entry that SessionOptions.register_custom_ops_library calls.
#include "native/kernels.h"
#include "onnxruntime/operators.h"
#include "onnxruntime/op.h"

namespace foredraft {
namespace {

OrtCustomOpDomain* make_domain() {
  static const OrtCustomOp operators[] = {block_linear_op(),   block_embedding_op(), dense_linear_op(),
                                          tree_attention_op(), rms_norm_op(),        add_rms_norm_op(),
                                          swiglu_op()};
  OrtCustomOpDomain* domain = nullptr;
  ort::check(ort::create_domain("foredraft", &domain));
  for (const OrtCustomOp& op : operators) ort::check(ort::add_operator(domain, &op));
  return domain;
}

}  // namespace
}  // namespace foredraft

extern "C" __attribute__((visibility("default"))) OrtStatus* RegisterCustomOps(OrtSessionOptions* options,
                                                                               const OrtApiBase* base) {
  using namespace foredraft;
  const OrtApi* api = base->GetApi(ort::kApiVersion);
  if (api == nullptr) return nullptr;  // older than the supported versions; the session reports the unknown operators
  ort::api = api;
  return ort::guarded([&] {
    if (chosen().kernels == nullptr) throw std::runtime_error(chosen().error);
    static OrtCustomOpDomain* const domain = make_domain();  // shared by all sessions, for the life of the process
    ort::check(ort::add_domain(options, domain));
  });
}
