// SPDX-License-Identifier: Apache-2.0
// cast: the same values as another dtype.
#include "ops/cast_util.h"

#include "ops/elementwise_util.h"
#include "ops/infer_util.h"
#include "ops/plain_operands_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_cast(const InferArgs& args) {
  require_no_state(args);
  const std::string& name = args.attrs.text("dtype");
  const std::optional<DType> dtype = dtype_from_name(name);
  if (!dtype || *dtype == DType::kState) {
    args.fail("dtype \"" + name + "\": use f32, f64, f16, bf16, i8, u8, i32, i64 or bool");
  }
  return {{*dtype, args.type(0).shape}};
}

// What is left of `x` as `to`. References hold floats as T whatever their dtype: those that `to` can hold stay as they
// are.
template <class T>
T rounded(DType from, DType to, T x) {
  if (to == DType::kF16) return f16_to_f32(f32_to_f16(static_cast<float>(x)));
  if (to == DType::kBF16) return bf16_to_f32(f32_to_bf16(static_cast<float>(x)));
  const bool narrower = to == DType::kF32 && from != DType::kF16 && from != DType::kBF16 && from != DType::kF32;
  return narrower ? static_cast<T>(static_cast<float>(x)) : x;
}

template <class T>
void cast_reference(RefCall<T>& call) {
  const RefTensor<T>& x = *call.inputs[0];
  RefTensor<T>& out = *call.outputs[0];
  const auto size = static_cast<size_t>(x.size());
  for (size_t i = 0; i < size && is_float(out.dtype); ++i) {
    out.f[i] = rounded<T>(x.dtype, out.dtype, is_float(x.dtype) ? x.f[i] : static_cast<T>(x.i[i]));
  }
  if (is_float(out.dtype)) return;
  for_dtype(out.dtype, false, [&](auto to) {
    constexpr DType kTo = decltype(to)::value;
    for (size_t i = 0; i < size; ++i) {
      out.i[i] = is_float(x.dtype) ? converted<kTo>(x.f[i]) : converted<kTo>(x.i[i]);
    }
    return true;
  });
}

std::unique_ptr<Kernel> make_cast_kernel(const KernelRequest& request) {
  using Made = std::unique_ptr<Kernel>;
  if (!plain_operands(request.node)) return nullptr;
  const DType source = request.node.input(0)->type().dtype;
  const DType target = request.node.output()->type().dtype;
  const std::string variant = "cast_" + std::string(dtype_name(source)) + "_" + std::string(dtype_name(target));
  return for_dtype(source, Made(), [&](auto from) {
    using From = Element<decltype(from)::value>;
    return for_dtype(target, Made(), [&](auto to) {
      constexpr DType kTo = decltype(to)::value;
      return make_unary_kernel<typename From::Stored, typename Element<kTo>::Stored>(
          variant, [](typename From::Stored x) { return converted<kTo>(From::wide(x)); });
    });
  });
}

}  // namespace

void register_op_cast(OpRegistry& registry) {
  OpDef op;
  op.name = "cast";
  op.doc =
      "x as `dtype`: floats are rounded to nearest even; floats become integers without their fraction, the nearest "
      "there is beyond the range, 0 for NaN; integers wrap around; bool is x != 0.";
  op.inputs = {{"x"}};
  op.attrs = {{"dtype", AttrKind::kText, std::string(), true, "name of a dtype: f32, bf16, i64, bool, ..."}};
  op.infer = infer_cast;
  op.reference = reference_kernel([](auto& call) { cast_reference(call); });
  op.make_cpu_kernel = make_cast_kernel;
  registry.add(std::move(op));
}

}  // namespace atb
