// The part of onnxruntime's C ABI that the operators use.
//
// onnxruntime's wheels carry no headers, and none are needed: OrtApi is a table of function pointers that only ever
// grows at its end (onnxruntime_c_api.h), so an entry's number never changes. OrtCustomOp is laid out as in version 16.
#pragma once

#include <cstddef>
#include <cstdint>

struct OrtStatus;
struct OrtValue;
struct OrtKernelContext;
struct OrtKernelInfo;
struct OrtSessionOptions;
struct OrtCustomOpDomain;
struct OrtTensorTypeAndShapeInfo;
using OrtApi = void*;

extern "C" {
struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version);
  const char* (*GetVersionString)();
};

struct OrtCustomOp {
  uint32_t version;
  void* (*CreateKernel)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*);
  const char* (*GetName)(const OrtCustomOp*);
  const char* (*GetExecutionProviderType)(const OrtCustomOp*);
  int (*GetInputType)(const OrtCustomOp*, size_t);
  size_t (*GetInputTypeCount)(const OrtCustomOp*);
  int (*GetOutputType)(const OrtCustomOp*, size_t);
  size_t (*GetOutputTypeCount)(const OrtCustomOp*);
  void (*KernelCompute)(void*, OrtKernelContext*);
  void (*KernelDestroy)(void*);
  int (*GetInputCharacteristic)(const OrtCustomOp*, size_t);
  int (*GetOutputCharacteristic)(const OrtCustomOp*, size_t);
  int (*GetInputMemoryType)(const OrtCustomOp*, size_t);
  int (*GetVariadicInputMinArity)(const OrtCustomOp*);
  int (*GetVariadicInputHomogeneity)(const OrtCustomOp*);
  int (*GetVariadicOutputMinArity)(const OrtCustomOp*);
  int (*GetVariadicOutputHomogeneity)(const OrtCustomOp*);
  OrtStatus* (*CreateKernelV2)(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void** kernel);
  OrtStatus* (*KernelComputeV2)(void* kernel, OrtKernelContext*);
};
}

namespace foredraft::ort {

constexpr uint32_t kApiVersion = 16;
enum ElementType { kFloat = 1, kUint8 = 2, kInt32 = 6, kFloat16 = 10 };
enum { kInvalidArgument = 2 };
enum { kRequired = 0, kOptional = 1 };

inline const OrtApi* api = nullptr;  // set when the library is registered

template <int ENTRY, class Result, class... Arguments> Result call(Arguments... arguments) {
  return reinterpret_cast<Result (*)(Arguments...)>(api[ENTRY])(arguments...);
}

inline OrtStatus* create_status(int code, const char* message) { return call<0, OrtStatus*>(code, message); }
inline const char* error_message(const OrtStatus* s) { return call<2, const char*>(s); }
inline OrtStatus* create_domain(const char* name, OrtCustomOpDomain** out) { return call<26, OrtStatus*>(name, out); }
inline OrtStatus* add_operator(OrtCustomOpDomain* d, const OrtCustomOp* op) { return call<27, OrtStatus*>(d, op); }
inline OrtStatus* add_domain(OrtSessionOptions* o, OrtCustomOpDomain* d) { return call<28, OrtStatus*>(o, d); }
inline OrtStatus* tensor_data(OrtValue* v, void** out) { return call<51, OrtStatus*>(v, out); }
inline OrtStatus* rank(const OrtTensorTypeAndShapeInfo* i, size_t* out) { return call<61, OrtStatus*>(i, out); }
inline OrtStatus* dimensions(const OrtTensorTypeAndShapeInfo* i, int64_t* out, size_t count) {
  return call<62, OrtStatus*>(i, out, count);
}
inline OrtStatus* shape_info(const OrtValue* v, OrtTensorTypeAndShapeInfo** out) {
  return call<65, OrtStatus*>(v, out);
}
inline OrtStatus* float_attribute(const OrtKernelInfo* i, const char* name, float* out) {
  return call<85, OrtStatus*>(i, name, out);
}
inline OrtStatus* int_attribute(const OrtKernelInfo* i, const char* name, int64_t* out) {
  return call<86, OrtStatus*>(i, name, out);
}
inline OrtStatus* input(const OrtKernelContext* c, size_t index, const OrtValue** out) {
  return call<90, OrtStatus*>(c, index, out);
}
inline OrtStatus* output(OrtKernelContext* c, size_t index, const int64_t* dims, size_t rank, OrtValue** out) {
  return call<91, OrtStatus*>(c, index, dims, rank, out);
}
inline void release_status(OrtStatus* s) { call<93, void>(s); }
inline void release_shape_info(OrtTensorTypeAndShapeInfo* i) { call<99, void>(i); }
inline OrtStatus* input_count(const OrtKernelInfo* i, size_t* out) { return call<230, OrtStatus*>(i, out); }
inline OrtStatus* constant_input(const OrtKernelInfo* i, size_t index, int* is_constant, const OrtValue** out) {
  return call<249, OrtStatus*>(i, index, is_constant, out);
}
inline OrtStatus* parallel_for(const OrtKernelContext* c, void (*body)(void*, size_t), size_t count, size_t batches,
                               void* data) {
  return call<274, OrtStatus*>(c, body, count, batches, data);
}

}  // namespace foredraft::ort
