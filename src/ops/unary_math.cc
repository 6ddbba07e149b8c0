// SPDX-License-Identifier: Apache-2.0
// neg, abs, exp, log, sqrt, rsqrt, reciprocal, sin, cos, tanh, sigmoid, erf: functions of one operand, elementwise.
#include <cmath>
#include <optional>

#include "ops/elementwise_util.h"
#include "ops/infer_util.h"
#include "ops/plain_operands_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_float(const InferArgs& args) {
  require_float(args, 0);
  return {{args.type(0).dtype, args.type(0).shape}};
}

std::vector<Type> infer_number(const InferArgs& args) {
  require_no_state(args);
  if (args.type(0).dtype == DType::kBool) args.fail("no arithmetic on " + args.type(0).str());
  return {{args.type(0).dtype, args.type(0).shape}};
}

OpDef unary(std::string name, const std::string& formula) {
  OpDef op;
  op.name = std::move(name);
  op.doc = "out = " + formula + ", elementwise.";
  op.inputs = {{"x"}};
  op.outputs = {{"out", -1, 0}};
  return op;
}

// `function` is called with f32, and with f64 by the oracle.
// `fast` computes f32 in vectors, where there is such a function.
template <class Function>
void register_function(OpRegistry& registry, const std::string& name, const std::string& formula, Function function,
                       std::optional<kernels::Pointwise> fast = std::nullopt) {
  OpDef op = unary(name, formula);
  op.infer = infer_float;
  op.flops = [](const Node& node) { return Dim(4) * num_elements(node.output()->shape()); };
  op.reference = reference_kernel([function](auto& call) {
    const auto& x = call.inputs[0]->f;
    for (size_t i = 0; i < x.size(); ++i) call.outputs[0]->f[i] = function(x[i]);
  });
  op.make_cpu_kernel = [name, function, fast](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    const bool f32 = request.node.input(0)->type().dtype == DType::kF32;
    if (!f32 || !plain_operands(request.node)) return nullptr;
    if (fast) return make_pointwise_kernel(name, *fast);
    return make_unary_kernel<float, float>(name + "_f32", function);
  };
  registry.add(std::move(op));
}

// Of integers too: `function` is called with floats and with wrapping unsigned integers and their sign.
template <class Floats, class Integers>
void register_sign(OpRegistry& registry, const std::string& name, const std::string& formula, Floats floats,
                   Integers integers) {
  OpDef op = unary(name, formula + " (integers wrap around)");
  op.infer = infer_number;
  op.reference = reference_kernel([floats, integers](auto& call) {
    const auto& x = *call.inputs[0];
    auto& out = *call.outputs[0];
    for (size_t i = 0; i < x.f.size(); ++i) out.f[i] = floats(x.f[i]);
    for (size_t i = 0; i < x.i.size(); ++i) out.i[i] = wrapped(out.dtype, static_cast<uint64_t>(integers(x.i[i])));
  });
  op.make_cpu_kernel = [name, floats, integers](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    const DType dtype = request.node.input(0)->type().dtype;
    if (!plain_operands(request.node)) return nullptr;
    if (dtype == DType::kF32) return make_unary_kernel<float, float>(name + "_f32", floats);
    if (dtype == DType::kI32) return make_unary_kernel<int32_t, int32_t>(name + "_i32", integers);
    if (dtype == DType::kI64) return make_unary_kernel<int64_t, int64_t>(name + "_i64", integers);
    return nullptr;
  };
  registry.add(std::move(op));
}

// -x without overflow: the smallest integer stays as it is.
template <class Integer>
Integer negated(Integer x) {
  using Bits = std::make_unsigned_t<Integer>;
  return static_cast<Integer>(Bits{0} - static_cast<Bits>(x));
}

}  // namespace

void register_op_unary_math(OpRegistry& registry) {
  register_sign(
      registry, "neg", "-x", [](auto x) { return -x; }, [](auto x) { return negated(x); });
  register_sign(
      registry, "abs", "|x|", [](auto x) { return std::abs(x); }, [](auto x) { return x < 0 ? negated(x) : x; });
  register_function(
      registry, "exp", "e^x", [](auto x) { return std::exp(x); }, kernels::Pointwise::kExp);
  register_function(registry, "log", "the natural logarithm of x", [](auto x) { return std::log(x); });
  register_function(registry, "sqrt", "the square root of x", [](auto x) { return std::sqrt(x); });
  register_function(registry, "rsqrt", "1 / sqrt(x)", [](auto x) { return decltype(x)(1) / std::sqrt(x); });
  register_function(registry, "reciprocal", "1 / x", [](auto x) { return decltype(x)(1) / x; });
  register_function(registry, "sin", "the sine of x (radians)", [](auto x) { return std::sin(x); });
  register_function(registry, "cos", "the cosine of x (radians)", [](auto x) { return std::cos(x); });
  register_function(
      registry, "tanh", "the hyperbolic tangent of x", [](auto x) { return std::tanh(x); }, kernels::Pointwise::kTanh);
  register_function(
      registry, "sigmoid", "1 / (1 + e^-x)", [](auto x) { return decltype(x)(1) / (decltype(x)(1) + std::exp(-x)); },
      kernels::Pointwise::kSigmoid);
  register_function(registry, "erf", "the error function of x, 2 / sqrt(pi) times the integral of e^-t^2 from 0 to x",
                    [](auto x) { return std::erf(x); });
}

}  // namespace atb
