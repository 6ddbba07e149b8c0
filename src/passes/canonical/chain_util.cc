// SPDX-License-Identifier: Apache-2.0
// Reading chains of plain operators.
#include "passes/canonical/chain_util.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <mutex>
#include <vector>

#include "passes/analysis/scalar.h"

namespace atb {

const Node* made_by(const Value* value, std::string_view op) {
  const Node* node = value == nullptr ? nullptr : value->producer();
  return node != nullptr && node->is(op) ? node : nullptr;
}

bool read_once(const Value* value) { return value->uses().size() == 1 && !value->graph()->is_output(value); }

std::optional<WithScalar> with_scalar(const Node& node) {
  for (const size_t at : {1u, 0u}) {
    const std::optional<double> scalar = scalar_value(node.input(at));
    Value* x = node.input(1 - at);
    if (scalar && x != nullptr && x->type() == node.output()->type()) return WithScalar{x, *scalar, at == 0};
  }
  return std::nullopt;
}

std::optional<Scaled> scaled_by_scalar(const Value* value) {
  const Node* mul = made_by(value, "mul");
  const Node* div = made_by(value, "div");
  if (mul == nullptr && div == nullptr) return std::nullopt;
  const std::optional<WithScalar> parts = with_scalar(mul != nullptr ? *mul : *div);
  if (!parts || (div != nullptr && (parts->scalar_first || parts->scalar == 0))) return std::nullopt;
  return Scaled{parts->x, mul != nullptr ? parts->scalar : 1 / parts->scalar};
}

bool over_last_axis(const Node& reduction) {
  const auto& axes = reduction.attrs().get<std::vector<int64_t>>("axes");
  return axes.size() == 1 && (axes[0] == -1 || axes[0] == reduction.input(0)->rank() - 1);
}

ConstantRef vector_constant(const Value* value, const Dim& width, int rank) {
  if (value == nullptr || !value->is_constant() || value->rank() < 1 || value->rank() > rank) return nullptr;
  const Type& type = value->type();
  if (!is_float(type.dtype) || type.encoding != nullptr || equal(type.shape.back(), width) != Tri::kYes) return nullptr;
  if (!std::all_of(type.shape.begin(), type.shape.end() - 1, [](const Dim& dim) { return dim == Dim(1); })) {
    return nullptr;
  }
  const ConstantRef& constant = value->constant();
  if (value->rank() == 1) return constant;
  std::vector<int64_t> shape = {constant->row_elems()};
  if (constant->absent()) return Constant::absent(constant->name(), type.dtype, nullptr, std::move(shape));
  const std::byte* row = constant->row(0);
  return Constant::from_storage(constant->name(), type.dtype, nullptr, std::move(shape),
                                storage_from_bytes({row, row + constant->row_bytes()}), 0);
}

ConstantRef ones(int64_t width) {
  static std::mutex mutex;
  static std::map<int64_t, std::weak_ptr<const Constant>> made;
  const std::lock_guard lock(mutex);
  ConstantRef known = made[width].lock();
  if (known == nullptr) {
    const std::vector<float> values(static_cast<size_t>(width), 1.0F);
    known = Constant::from_f32("ones", {width}, values);
    made[width] = known;
  }
  return known;
}

bool pass_through(const Node& node, Value* x, Rewriter& rewriter) {
  if (!(x->type() == node.output()->type())) return false;
  if (x->producer() == nullptr && node.graph()->is_output(node.output())) return false;
  rewriter.replace(node.output(), x);
  return true;
}

double literal(double rounded_to_f32) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(rounded_to_f32)).ptr;
  double value = 0;
  std::from_chars(text, end, value);
  return value;
}

}  // namespace atb
