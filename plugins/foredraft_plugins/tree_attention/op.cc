// foredraft::TreeAttention(qkv f32[T, (H + 2 HK) HD], key f32[HK, S / 16, HD, 16], value f32[HK, S, HD], slots i32[T],
// positions i32[T], n_past i32[1], mask i32[T, W], cos f32[C, R / 2], sin f32[C, R / 2]) -> f32[T, H HD].
// Writes into its inputs `key` and `value` (kernel.h). Meaning: reference.py.
#include "native/kernels.h"
#include "onnxruntime/op.h"
#include "onnxruntime/operators.h"
#include "onnxruntime/parallel.h"
#include "onnxruntime/scratch.h"

namespace foredraft {
namespace {

constexpr int64_t kTokensToShareWriting = 32;  // from here on, writing the cache is worth spreading over threads
constexpr int64_t kRowsPerTile = 12;           // rows of one kv head that pass over its cache together

void check_index(const char* name, int64_t index, int64_t value, const char* limit_name, int64_t limit) {
  if (value < 0 || value >= limit)
    throw std::runtime_error(std::string(name) + "[" + std::to_string(index) + "] is " + std::to_string(value) +
                             ", but " + limit_name + " is " + std::to_string(limit));
}

// One past the highest slot that a token sees.
int64_t reach_of(const int32_t* mask, int64_t words, int64_t n_past) {
  for (int64_t w = words - 1; w >= 0; --w)
    if (mask[w] != 0) return n_past + 32 * w + 32 - __builtin_clz(static_cast<uint32_t>(mask[w]));
  return n_past;
}

class TreeAttention {
 public:
  static constexpr const char* kName = "TreeAttention";
  static constexpr ort::Slot kInputs[] = {{ort::kFloat}, {ort::kFloat}, {ort::kFloat}, {ort::kInt32}, {ort::kInt32},
                                          {ort::kInt32}, {ort::kInt32}, {ort::kFloat}, {ort::kFloat}};
  static constexpr ort::Slot kOutputs[] = {{ort::kFloat}};

  explicit TreeAttention(const ort::Node& node)
      : shape_{node.integer("num_heads"), node.integer("kv_num_heads"), node.integer("head_dim"),
               node.integer("rotary_dim"), node.real("scale")} {
    const TreeAttentionShape& s = shape_;
    if (s.kv_heads <= 0 || s.heads <= 0 || s.heads % s.kv_heads != 0)
      throw std::runtime_error("num_heads is " + std::to_string(s.heads) + " and kv_num_heads is " +
                               std::to_string(s.kv_heads) + ", expected a positive multiple of a positive number");
    if (s.head_dim < 16 || s.head_dim > 256 || s.head_dim % 16 != 0)
      throw std::runtime_error("head_dim is " + std::to_string(s.head_dim) + ", expected a multiple of 16 up to 256");
    if (s.rotary_dim < 0 || s.rotary_dim > s.head_dim || s.rotary_dim % 2 != 0)
      throw std::runtime_error("rotary_dim is " + std::to_string(s.rotary_dim) +
                               ", expected an even number up to head_dim, " + std::to_string(s.head_dim));
  }

  void compute(const ort::Context& context) const {
    static thread_local Scratch reach;
    const int64_t tokens = ort::expect_shape(context.input(0), "qkv", {ort::kAny, shape_.qkv_width()})[0];
    float* out = context.output(0, {tokens, shape_.heads * shape_.head_dim});
    if (tokens == 0) return;
    const auto in = read(context, tokens, static_cast<int32_t*>(reach.reserve(sizeof(int32_t) * tokens)));
    const TreeAttentionKernels& kernel = kernels().tree_attention;
    ort::parallel_ranges(context, tokens, tokens / kTokensToShareWriting,
                         [&](int64_t first, int64_t last) { kernel.write_cache(shape_, in, first, last); });

    const int64_t rows = tokens * shape_.heads_per_kv_head();
    const int64_t cuts = std::min((rows + kRowsPerTile - 1) / kRowsPerTile, tokens);
    ort::parallel_for(context, shape_.kv_heads * cuts, [&](int64_t tile) {  // the tiles of a kv head follow each other
      static thread_local Scratch scratch;
      const int64_t first = tokens * (tile % cuts) / cuts, last = tokens * (tile % cuts + 1) / cuts;
      const int64_t numbers = attend_scratch(shape_, in, first, last);
      auto* memory = static_cast<float*>(scratch.reserve(sizeof(float) * static_cast<size_t>(numbers)));
      kernel.attend(shape_, in, tile / cuts, first, last, memory, out);
    });
  }

 private:
  // All inputs, checked; fills `reach` [tokens].
  TreeAttentionInputs read(const ort::Context& context, int64_t tokens, int32_t* reach) const {
    const int64_t dim = shape_.head_dim, half = shape_.rotary_dim / 2;
    const int64_t slots = ort::expect_shape(context.input(2), "value", {shape_.kv_heads, ort::kAny, dim})[1];
    if (slots % kSlotsPerBlock != 0)
      throw std::runtime_error("value has " + std::to_string(slots) + " slots, expected a multiple of 16");
    ort::expect_shape(context.input(1), "key", {shape_.kv_heads, slots / kSlotsPerBlock, dim, kSlotsPerBlock});
    ort::expect_shape(context.input(3), "slots", {tokens});
    ort::expect_shape(context.input(4), "positions", {tokens});
    ort::expect_shape(context.input(5), "n_past", {1});
    const int64_t words = ort::expect_shape(context.input(6), "mask", {tokens, ort::kAny})[1];
    // A layer that does not rotate shares the tables of those that do, whatever their width.
    const int64_t width = half > 0 ? half : ort::kAny;
    const int64_t table = ort::expect_shape(context.input(7), "cos", {ort::kAny, width})[0];
    ort::expect_shape(context.input(8), "sin", {table, width});

    TreeAttentionInputs in{};
    in.qkv = ort::data_of<float>(context.input(0));
    in.key = ort::data_of<float>(context.input(1));
    in.value = ort::data_of<float>(context.input(2));
    in.slots = ort::data_of<int32_t>(context.input(3));
    in.positions = ort::data_of<int32_t>(context.input(4));
    in.n_past = *ort::data_of<int32_t>(context.input(5));
    in.mask = ort::data_of<int32_t>(context.input(6));
    in.cos = ort::data_of<float>(context.input(7));
    in.sin = ort::data_of<float>(context.input(8));
    in.reach = reach;
    in.mask_words = words;
    in.cache_slots = slots;
    check_values(in, tokens, table, reach);
    return in;
  }

  void check_values(const TreeAttentionInputs& in, int64_t tokens, int64_t table, int32_t* reach) const {
    if (in.n_past < 0 || in.n_past > in.cache_slots)
      throw std::runtime_error("n_past is " + std::to_string(in.n_past) + ", but the cache has " +
                               std::to_string(in.cache_slots) + " slots");
    for (int64_t t = 0; t < tokens; ++t) {
      check_index("slots", t, in.slots[t], "the number of slots in the cache", in.cache_slots);
      if (shape_.rotary_dim > 0)
        check_index("positions", t, in.positions[t], "the number of positions in cos and sin", table);
      const int64_t seen = reach_of(in.mask + t * in.mask_words, in.mask_words, in.n_past);
      if (seen > in.cache_slots)
        throw std::runtime_error("mask[" + std::to_string(t) + "] shows slot " + std::to_string(seen - 1) +
                                 ", but the cache has " + std::to_string(in.cache_slots) + " slots");
      reach[t] = static_cast<int32_t>(seen);
    }
  }

  TreeAttentionShape shape_;
};

}  // namespace

OrtCustomOp tree_attention_op() { return ort::make_op<TreeAttention>(); }

}  // namespace foredraft
