// SPDX-License-Identifier: Apache-2.0
#include "ops/rotary_kernel.h"

#include "kernels/rotary.h"
#include "ops/attention_util.h"

namespace atb {
namespace {

// One unit a token: all heads of all tensors.
class RotaryKernel final : public Kernel {
 public:
  RotaryKernel(int tensors, bool interleaved) : tensors_(tensors), interleaved_(interleaved) {}

  int64_t units(const Call& call, int /*phase*/) const noexcept override {
    int64_t tokens = 1;
    for (int axis = 0; axis + 2 < call.inputs[0].rank; ++axis) tokens *= call.inputs[0].dim(axis);
    return tokens;
  }
  double cost(const Call& call, int /*phase*/) const noexcept override {
    double bytes = 0;
    for (int i = 0; i < tensors_; ++i) bytes += static_cast<double>(call.inputs[static_cast<size_t>(i)].size()) * 8;
    return bytes;
  }
  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* /*scratch*/) const noexcept override {
    const size_t tensors = static_cast<size_t>(tensors_);
    const TensorView& cos = call.inputs[tensors];
    const TensorView& sin = call.inputs[tensors + 1];
    const int64_t half = cos.dim(-1);
    const int64_t table_rows = cos.rows();
    for (int64_t token = begin; token < end; ++token) {
      // The tables may lack the outermost axes (one sequence of positions for a whole batch).
      const float* c = cos.as<const float>() + leading_offset(cos, cos.rank - 1, token % table_rows);
      const float* s = sin.as<const float>() + leading_offset(sin, sin.rank - 1, token % table_rows);
      for (size_t i = 0; i < tensors; ++i) {
        const TensorView& x = call.inputs[i];
        const TensorView& y = call.outputs[i];
        const size_t head_axis = static_cast<size_t>(x.rank - 2);
        kernels::rotate_heads(x.as<const float>() + leading_offset(x, x.rank - 2, token), x.stride[head_axis],
                              y.as<float>() + leading_offset(y, y.rank - 2, token), y.stride[head_axis], x.dim(-2),
                              x.dim(-1), half, c, s, interleaved_);
      }
    }
  }
  std::string variant(const Call& /*call*/) const override {
    return std::string("rotary/") + (interleaved_ ? "interleaved" : "split") + "/f32/" + kernels::rotary_target();
  }

 private:
  int tensors_;
  bool interleaved_;
};

}  // namespace

std::unique_ptr<Kernel> make_rotary_kernel(const KernelRequest& request, int tensors) {
  for (const Value* input : request.node.inputs()) {
    if (input->type().dtype != DType::kF32) return nullptr;
  }
  return std::make_unique<RotaryKernel>(tensors, request.node.attrs().flag("interleaved"));
}

}  // namespace atb
