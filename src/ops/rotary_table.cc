// SPDX-License-Identifier: Apache-2.0
// rotary_table: cosines and sines of rotary position embedding.
#include <cmath>
#include <memory>
#include <utility>

#include "ir/kernel.h"
#include "ops/attention_util.h"
#include "ops/infer_util.h"

namespace atb {
namespace {

std::vector<Type> infer_rotary_table(const InferArgs& args) {
  require_integer(args, 0);
  require_float(args, 1);
  require_rank(args, 1, 1);
  Shape shape = args.type(0).shape;
  shape.push_back(args.type(1).shape[0]);
  return {{args.type(1).dtype, shape}, {args.type(1).dtype, shape}};
}

// The angle is a product of f32, part of the definition: a wider one would give another model.
float angle_of(int64_t position, float inv_freq) { return static_cast<float>(position) * inv_freq; }

template <class T>
void rotary_table_reference(RefCall<T>& call) {
  const auto& positions = call.inputs[0]->i;
  const auto& inv_freq = call.inputs[1]->f;
  const T scale = static_cast<T>(call.node.attrs().real("scale"));
  size_t at = 0;
  for (const int64_t position : positions) {
    for (const T frequency : inv_freq) {
      const T angle = angle_of(position, static_cast<float>(frequency));
      call.outputs[0]->f[at] = std::cos(angle) * scale;
      call.outputs[1]->f[at++] = std::sin(angle) * scale;
    }
  }
}

// One unit a position. Trigonometry in f64 of the f32 angle, rounded once.
class RotaryTableKernel final : public Kernel {
 public:
  RotaryTableKernel(std::shared_ptr<const float> inv_freq, double scale)
      : inv_freq_(std::move(inv_freq)), scale_(static_cast<float>(scale)) {}

  int64_t units(const Call& call, int /*phase*/) const noexcept override { return call.outputs[0].rows(); }
  double cost(const Call& call, int /*phase*/) const noexcept override {
    return static_cast<double>(call.outputs[0].size()) * 100;
  }
  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* /*scratch*/) const noexcept override {
    const TensorView& positions = call.inputs[0];
    const TensorView& cos = call.outputs[0];
    const TensorView& sin = call.outputs[1];
    const int64_t half = cos.dim(-1);
    const float* inv_freq = inv_freq_ != nullptr ? inv_freq_.get() : call.inputs[1].as<const float>();
    for (int64_t row = begin; row < end; ++row) {
      const int64_t at = leading_offset(positions, positions.rank, row);
      const int64_t position =
          positions.dtype == DType::kI64 ? positions.as<const int64_t>()[at] : positions.as<const int32_t>()[at];
      float* c = cos.as<float>() + leading_offset(cos, cos.rank - 1, row);
      float* s = sin.as<float>() + leading_offset(sin, sin.rank - 1, row);
      for (int64_t i = 0; i < half; ++i) {
        const double angle = angle_of(position, inv_freq[i]);
        c[i] = static_cast<float>(std::cos(angle)) * scale_;
        s[i] = static_cast<float>(std::sin(angle)) * scale_;
      }
    }
  }
  std::string variant(const Call& /*call*/) const override { return "rotary_table/f32"; }

 private:
  std::shared_ptr<const float> inv_freq_;  // null: an activation, read from the call
  float scale_;
};

}  // namespace

void register_op_rotary_table(OpRegistry& registry) {
  OpDef op;
  op.name = "rotary_table";
  op.doc =
      "cos[..., i] = cos(positions[...] * inv_freq[i]) * scale and sin likewise, for inv_freq [R/2]; angles are "
      "products "
      "in f32.";
  op.inputs = {{"positions"}, {"inv_freq"}};
  op.outputs = {{"cos"}, {"sin"}};
  op.attrs = {
      {"scale", AttrKind::kReal, 1.0, false, "factor of both tables (attention scaling of long-context ropes)"}};
  op.infer = infer_rotary_table;
  op.reference = reference_kernel([](auto& call) { rotary_table_reference(call); });
  op.make_cpu_kernel = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    const Value* inv_freq = request.node.input(1);
    if (inv_freq->type().dtype != DType::kF32) return nullptr;
    std::shared_ptr<const float> values;
    if (inv_freq->is_constant()) values = request.store.f32(inv_freq->constant());
    return std::make_unique<RotaryTableKernel>(std::move(values), request.node.attrs().real("scale"));
  };
  registry.add(std::move(op));
}

}  // namespace atb
