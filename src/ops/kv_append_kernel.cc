// SPDX-License-Identifier: Apache-2.0
#include "ops/kv_append_kernel.h"

#include "kernels/kv_store.h"
#include "kernels/rotary.h"
#include "ops/attention_util.h"

namespace atb {
namespace {

// One unit: the rows of one sequence that fall into one key panel (16 positions), so that no two units write the same
// cache line of keys.
class KvAppendKernel final : public Kernel {
 public:
  KvAppendKernel(const KvLayout& layout, int64_t slot, bool rotate, bool interleaved)
      : layout_(layout), slot_(slot), rotate_(rotate), interleaved_(interleaved) {}

  int64_t units(const Call& call, int /*phase*/) const noexcept override {
    int64_t units = 0;
    for (const SequenceStep& sequence : call.sequences) units += panels(sequence);
    return units;
  }
  double cost(const Call& call, int /*phase*/) const noexcept override {
    double values = 0;
    for (size_t i = 0; i < (rotate_ ? 3 : 2); ++i) values += static_cast<double>(call.inputs[i].size());
    return 8 * values;
  }
  size_t worker_scratch_bytes(const Call& /*largest*/) const override {
    return rotate_ ? static_cast<size_t>(kKeyPanel * layout_.kv_heads * layout_.head_dim) * sizeof(float) : 0;
  }
  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end, std::byte* scratch) const noexcept override {
    for_each_unit(call.sequences, begin, end, panels, [&](const SequenceStep& sequence, int64_t unit) {
      const int64_t panel = sequence.past / kKeyPanel + unit;
      const int64_t first = std::max(panel * kKeyPanel, sequence.past);
      const int64_t last = std::min((panel + 1) * kKeyPanel, sequence.past + sequence.rows);
      append(call, sequence, first, last - first, reinterpret_cast<float*>(scratch));
    });
  }
  std::string variant(const Call& /*call*/) const override {
    std::string name = rotate_ ? "rotary_kv_append/" : "kv_append/";
    if (rotate_) name += interleaved_ ? "interleaved/" : "split/";
    name += dtype_name(layout_.dtype);
    return rotate_ ? name + "/" + kernels::rotary_target() : name;
  }

 private:
  static int64_t panels(const SequenceStep& sequence) {
    if (sequence.rows <= 0) return 0;
    return (sequence.past + sequence.rows - 1) / kKeyPanel - sequence.past / kKeyPanel + 1;
  }

  // Rows from `row` on of [rows, heads, D] or [B, T, heads, D], all of one sequence.
  static kernels::KvRows rows_of(const TensorView& view, int64_t row) {
    const auto heads = static_cast<size_t>(view.rank - 2);
    return {view.as<const float>() + leading_offset(view, view.rank - 2, row), view.stride[heads - 1],
            view.stride[heads]};
  }

  // Positions [first, first + rows) of a sequence, within one panel.
  void append(const Call& call, const SequenceStep& sequence, int64_t first, int64_t rows, float* rotated) const {
    const int64_t row = sequence.row_begin + first - sequence.past;
    std::byte* slot = sequence.slot(layout_, first / layout_.block_tokens, slot_);
    const int64_t position = first % layout_.block_tokens;
    const size_t k = rotate_ ? 1 : 0;
    kernels::KvRows keys = rows_of(call.inputs[k], row);
    if (rotate_) {
      rotate_queries(call, row, rows);
      keys = rotate_keys(call, row, rows, rotated);
    }
    kernels::store_keys(layout_, slot, position, rows, keys);
    kernels::store_values(layout_, slot, position, rows, rows_of(call.inputs[k + 1], row));
  }

  void rotate_queries(const Call& call, int64_t row, int64_t rows) const {
    const kernels::KvRows from = rows_of(call.inputs[0], row);
    const kernels::KvRows to = rows_of(call.outputs[0], row);
    for (int64_t r = 0; r < rows; ++r) {
      rotate(call, row + r, call.inputs[0].dim(-2), from.data + r * from.row_stride, from.head_stride,
             const_cast<float*>(to.data) + r * to.row_stride, to.head_stride);
    }
  }

  kernels::KvRows rotate_keys(const Call& call, int64_t row, int64_t rows, float* rotated) const {
    const kernels::KvRows from = rows_of(call.inputs[1], row);
    const kernels::KvRows keys{rotated, layout_.kv_heads * layout_.head_dim, layout_.head_dim};
    for (int64_t r = 0; r < rows; ++r) {
      rotate(call, row + r, layout_.kv_heads, from.data + r * from.row_stride, from.head_stride,
             rotated + r * keys.row_stride, keys.head_stride);
    }
    return keys;
  }

  // The tables may lack the batch: one sequence of positions for all of it.
  void rotate(const Call& call, int64_t row, int64_t heads, const float* x, int64_t x_stride, float* y,
              int64_t y_stride) const {
    const TensorView& cos = call.inputs[3];
    const TensorView& sin = call.inputs[4];
    const int64_t at = row % cos.rows();
    kernels::rotate_heads(x, x_stride, y, y_stride, heads, layout_.head_dim, cos.dim(-1),
                          cos.as<const float>() + leading_offset(cos, cos.rank - 1, at),
                          sin.as<const float>() + leading_offset(sin, sin.rank - 1, at), interleaved_);
  }

  KvLayout layout_;
  int64_t slot_;
  bool rotate_;
  bool interleaved_;
};

}  // namespace

const KvLayout& checked_kv_layout(const KernelRequest& request, int64_t kv_heads, const Dim& head_dim) {
  const Node& node = request.node;
  require(request.kv != nullptr, Code::kInternal, "[", node.op_name(), "] ", node.name(),
          ": the plan has no cache layout");
  const KvLayout& layout = *request.kv;
  const int64_t slot = node.attrs().integer("slot");
  require(slot >= 0 && (slot < layout.slots || layout.slots == 1), Code::kInternal, "[", node.op_name(), "] ",
          node.name(), ": slot ", slot, " of ", layout.slots);
  require(kv_heads == layout.kv_heads && head_dim == Dim(layout.head_dim), Code::kInternal, "[", node.op_name(), "] ",
          node.name(), ": ", kv_heads, " kv heads of ", head_dim.str(), ", the cache has ", layout.kv_heads, " of ",
          layout.head_dim);
  return layout;
}

int64_t slot_in_block(const KvLayout& layout, const Node& node) {
  return layout.slots == 1 ? 0 : node.attrs().integer("slot");
}

std::unique_ptr<Kernel> make_kv_append_kernel(const KernelRequest& request, bool rotate) {
  const Node& node = request.node;
  for (const Value* input : node.inputs()) {
    if (input->type().dtype != DType::kF32 && input->type().dtype != DType::kState) return nullptr;
  }
  const Value* k = node.input(rotate ? 1 : 0);
  const KvLayout& layout = checked_kv_layout(request, k->dim(-2).constant(), k->dim(-1));
  return std::make_unique<KvAppendKernel>(layout, slot_in_block(layout, node), rotate,
                                          rotate && node.attrs().flag("interleaved"));
}

}  // namespace atb
