// SPDX-License-Identifier: Apache-2.0
// qkv_load: the first step of attention. Queries, keys and values in the blocks that the next one reads, q and k normed
// on the way.
#include <vector>

#include "kernels/norm.h"
#include "ops/attention_util.h"
#include "ops/norm_util.h"
#include "ops/plain_operands_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

// Inputs.
constexpr size_t kQ = 0, kK = 1, kV = 2, kQWeight = 3, kQBias = 4, kKWeight = 5, kKBias = 6;

bool is_layer_norm(const Attrs& attrs) { return attrs.get<std::string>("norm") == "layer"; }

void check_norm(const InferArgs& args) {
  const auto& norm = args.attrs.get<std::string>("norm");
  if (norm != "none" && norm != "rms" && norm != "layer") {
    args.fail("norm \"" + norm + "\" must be \"none\", \"rms\" or \"layer\"");
  }
  for (size_t i = kQWeight; i <= kKBias; ++i) {
    if (!args.has(i)) continue;
    const bool bias = i == kQBias || i == kKBias;
    if (norm == "none" || (bias && norm == "rms")) {
      args.fail(args.op.inputs[i].name + " is given; norm \"" + norm + "\" has none");
    }
    require_vector(args, i, args.type(kQ).shape[3], "a norm's weight or bias and the head size");
  }
}

std::vector<Type> infer_qkv_load(const InferArgs& args) {
  require_qkv(args, true);
  check_norm(args);
  const Shape& k = args.type(kK).shape;
  const Dim panels = Dim::floordiv(k[1] + Dim(kKeyPanel - 1), Dim(kKeyPanel));
  return {args.type(kQ),
          {args.type(kK).dtype, {k[0], k[2], panels, k[3], Dim(kKeyPanel)}},
          {args.type(kV).dtype, {k[0], k[2], k[1], k[3]}}};
}

// One row, normed as the attributes say.
template <class T>
void reference_row(RefCall<T>& call, size_t weight, const T* x, int64_t n, T* out) {
  const Attrs& attrs = call.node.attrs();
  const auto vector = [&](size_t input) -> const T* {
    const bool given = input < call.inputs.size() && call.inputs[input] != nullptr;
    return given ? call.inputs[input]->f.data() : nullptr;
  };
  if (attrs.template get<std::string>("norm") == "none") {
    std::copy_n(x, n, out);
  } else if (is_layer_norm(attrs)) {
    layer_norm_row(x, vector(weight), vector(weight + 1), attrs.real("eps"), n, out);
  } else {
    const std::vector<T> ones(static_cast<size_t>(n), T(1));
    rms_norm_row(x, vector(weight) != nullptr ? vector(weight) : ones.data(), attrs.real("eps"), n, out);
  }
}

template <class T>
void qkv_load_reference(RefCall<T>& call) {
  const RefTensor<T>&q = *call.inputs[kQ], &k = *call.inputs[kK], &v = *call.inputs[kV];
  const int64_t keys = k.shape[1], kv_heads = k.shape[2], n = k.shape[3], panels = call.outputs[1]->shape[2];
  for (int64_t row = 0; row < row_count(q.shape); ++row) {
    reference_row(call, kQWeight, q.f.data() + row * n, n, call.outputs[0]->f.data() + row * n);
  }
  std::vector<T> normed(static_cast<size_t>(n));
  for (int64_t row = 0; row < row_count(k.shape); ++row) {
    const int64_t head = row % kv_heads, key = row / kv_heads % keys, batch = row / kv_heads / keys;
    reference_row(call, kKWeight, k.f.data() + row * n, n, normed.data());
    const int64_t panel = ((batch * kv_heads + head) * panels + key / kKeyPanel) * n;
    for (int64_t d = 0; d < n; ++d) {
      const int64_t at = (panel + d) * kKeyPanel + key % kKeyPanel;
      call.outputs[1]->f[static_cast<size_t>(at)] = normed[static_cast<size_t>(d)];
    }
    std::copy_n(v.f.data() + row * n, n, call.outputs[2]->f.data() + ((batch * kv_heads + head) * keys + key) * n);
  }
}

// Units: the tokens of q, then the panels of k with the rows of v beside them.
class QkvLoadKernel final : public Kernel {
 public:
  explicit QkvLoadKernel(const KernelRequest& request)
      : normed_(request.node.attrs().get<std::string>("norm") != "none"),
        layer_(is_layer_norm(request.node.attrs())),
        eps_(static_cast<float>(request.node.attrs().real("eps"))) {
    for (size_t i = 0; i < 4; ++i) vectors_[i] = make_norm_vector(request, static_cast<int>(kQWeight + i));
  }

  int64_t units(const Call& call, int /*phase*/) const noexcept override { return query_tokens(call) + panels(call); }

  double cost(const Call& call, int /*phase*/) const noexcept override {
    const int64_t elements = call.inputs[kQ].size() + 2 * call.inputs[kK].size();
    return static_cast<double>(elements) * 2 * sizeof(float);
  }

  size_t worker_scratch_bytes(const Call& largest) const override {
    return static_cast<size_t>(kKeyPanel * largest.inputs[kK].dim(3)) * sizeof(float);
  }

  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* worker_scratch) const noexcept override {
    const int64_t tokens = query_tokens(call);
    for (int64_t unit = begin; unit < end; ++unit) {
      if (unit < tokens) {
        load_queries(call, unit);
      } else {
        load_panel(call, unit - tokens, reinterpret_cast<float*>(worker_scratch));
      }
    }
  }

  std::string variant(const Call& /*call*/) const override {
    return normed_ ? std::string("qkv_load_f32/normed/") + kernels::norm_target() : "qkv_load_f32/copy";
  }

 private:
  static int64_t query_tokens(const Call& call) { return call.inputs[kQ].dim(0) * call.inputs[kQ].dim(1); }
  static int64_t panels(const Call& call) {
    const TensorView& blocks = call.outputs[1];
    return blocks.dim(0) * blocks.dim(1) * blocks.dim(2);
  }

  // `vector`: which of the norm's vectors is the row's weight; its bias follows.
  void load_row(const Call& call, size_t vector, const float* row, int64_t n, float* out) const {
    if (!normed_) {
      std::copy_n(row, n, out);
      return;
    }
    kernels::norm_row({vectors_[vector].data(call), vectors_[vector + 1].data(call), eps_, n, layer_}, row, out);
  }

  void load_queries(const Call& call, int64_t token) const {
    const TensorView& q = call.inputs[kQ];
    const TensorView& out = call.outputs[0];
    const float* from = q.as<const float>() + leading_offset(q, 2, token);
    float* to = out.as<float>() + leading_offset(out, 2, token);
    for (int64_t head = 0; head < q.dim(2); ++head) {
      load_row(call, 0, from + head * q.stride[2], q.dim(3), to + head * out.stride[2]);
    }
  }

  void load_panel(const Call& call, int64_t unit, float* normed) const {
    const TensorView& k = call.inputs[kK];
    const TensorView& v = call.inputs[kV];
    const TensorView& panels = call.outputs[1];
    const TensorView& values = call.outputs[2];
    const int64_t first = unit % panels.dim(2) * kKeyPanel;
    const int64_t head = unit / panels.dim(2) % k.dim(2);
    const int64_t batch = unit / panels.dim(2) / k.dim(2);
    const int64_t n = k.dim(3);
    const int64_t count = std::min(kKeyPanel, k.dim(1) - first);
    const float* keys = k.as<const float>() + batch * k.stride[0] + first * k.stride[1] + head * k.stride[2];
    int64_t stride = k.stride[1];
    if (normed_) {
      for (int64_t i = 0; i < count; ++i) load_row(call, 2, keys + i * stride, n, normed + i * n);
      keys = normed;
      stride = n;
    }
    pack_key_panel(keys, stride, count, n, panels.as<float>() + leading_offset(panels, 3, unit));
    const float* from = v.as<const float>() + batch * v.stride[0] + first * v.stride[1] + head * v.stride[2];
    float* to = values.as<float>() + batch * values.stride[0] + head * values.stride[1] + first * values.stride[2];
    for (int64_t i = 0; i < count; ++i) std::copy_n(from + i * v.stride[1], n, to + i * values.stride[2]);
  }

  bool normed_;
  bool layer_;
  float eps_;
  std::array<NormVector, 4> vectors_;  // weight and bias of q, then of k
};

std::unique_ptr<Kernel> make_kernel(const KernelRequest& request) {
  for (size_t i = kQ; i <= kKBias; ++i) {
    const Value* input = request.node.input(i);
    const bool converted = input != nullptr && input->is_constant() && i >= kQWeight;
    if (input != nullptr && !converted && input->type().dtype != DType::kF32) return nullptr;
  }
  if (!plain_operands(request.node)) return nullptr;
  return std::make_unique<QkvLoadKernel>(request);
}

}  // namespace

void register_op_qkv_load(OpRegistry& registry) {
  OpDef op;
  op.name = "qkv_load";
  op.doc =
      "The load of blocked attention: q [B, T, H, D], and k and v [B or 1, S, KV, D] in the blocks that "
      "block_attention "
      "reads: keys [B or 1, KV, ceil(S / 16), D, 16], 16 side by side with zeros beyond the last, and values [B or 1, "
      "KV, S, D]. With norm \"rms\" or \"layer\" each head of q and of k goes through that norm over D on its way.";
  op.inputs = {{"q"}, {"k"}, {"v"}, {"q_weight", true}, {"q_bias", true}, {"k_weight", true}, {"k_bias", true}};
  op.outputs = {{"q_rows"}, {"k_panels"}, {"v_rows"}};
  op.attrs = {{"norm", AttrKind::kText, std::string("none"), false, "of q and k: \"none\", \"rms\" or \"layer\""},
              {"eps", AttrKind::kReal, 0.0, false, "of that norm"}};
  op.infer = infer_qkv_load;
  op.flops = [](const Node& node) {
    if (node.attrs().get<std::string>("norm") == "none") return Dim(0);
    return Dim(4) * (num_elements(node.input(kQ)->shape()) + num_elements(node.input(kK)->shape()));
  };
  op.reference = reference_kernel([](auto& call) { qkv_load_reference(call); });
  op.make_cpu_kernel = make_kernel;
  registry.add(std::move(op));
}

}  // namespace atb
