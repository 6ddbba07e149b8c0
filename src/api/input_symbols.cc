// SPDX-License-Identifier: Apache-2.0
#include "api/input_symbols.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "core/error.h"

namespace atb {
namespace {

std::string text_of(const TensorView& view) {
  return Type{view.dtype, Shape(view.shape.begin(), view.shape.begin() + view.rank)}.str();
}

void add_symbols(const Value& value, SymbolRanges& ranges) {
  for (const Dim& dim : value.shape()) collect_symbols(dim, ranges);
}

Dim substitute(const Dim& dim, const Bindings& bindings) {
  std::map<std::string, Dim, std::less<>> values;
  for (const auto& [symbol, value] : bindings) values.emplace(symbol, value);
  return dim.substitute(values);
}

// The one symbol of a dim that is linear in it: dim = scale * symbol + offset.
struct Linear {
  std::string symbol;
  int64_t scale;
  int64_t offset;
};

std::optional<Linear> as_linear(const Dim& dim) {
  SymbolRanges symbols;
  collect_symbols(dim, symbols);
  // Parentheses are printed around the operands of floordiv, mod, min and max only.
  if (symbols.size() != 1 || dim.str().find('(') != std::string::npos) return std::nullopt;
  const std::string& symbol = symbols.begin()->first;
  const auto at = [&](int64_t value) { return dim.eval({{symbol, value}}); };
  const int64_t scale = at(1) - at(0);
  if (scale == 0 || at(2) - at(1) != scale || at(3) - at(2) != scale) return std::nullopt;
  return Linear{symbol, scale, at(0)};
}

class Binder {
 public:
  Binder(const Graph& graph, std::span<const TensorView> inputs)
      : graph_(graph), inputs_(inputs), ranges_(graph_symbols(graph)) {}

  Bindings run() {
    require(inputs_.size() == graph_.inputs().size(), Code::kInvalidArgument, "[graph] ", graph_.name(), ": ",
            inputs_.size(), " inputs given, it takes ", graph_.inputs().size());
    for (size_t i = 0; i < inputs_.size(); ++i) check_type(*graph_.inputs()[i], inputs_[i]);
    while (solve_one()) {
    }
    for (size_t i = 0; i < inputs_.size(); ++i) check_shape(*graph_.inputs()[i], inputs_[i]);
    return bindings_;
  }

 private:
  template <class... Parts>
  [[noreturn]] static void fail(const Value& input, const TensorView& view, const Parts&... parts) {
    throw_error(Code::kInvalidArgument, "[graph] input ", input.name(), ": is ", text_of(view), ", expected ",
                input.type().str(), parts...);
  }

  static void check_type(const Value& input, const TensorView& view) {
    if (view.dtype != input.type().dtype) fail(input, view, "; convert it first");
    if (view.rank != input.rank()) fail(input, view, "; it has ", view.rank, " axes, not ", input.rank());
  }

  // Binds one more symbol; false when no dim gives another.
  bool solve_one() {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Value& input = *graph_.inputs()[i];
      for (int axis = 0; axis < input.rank(); ++axis) {
        const std::optional<Linear> linear = as_linear(substitute(input.dim(axis), bindings_));
        if (!linear) continue;
        bind(*linear, input, inputs_[i], axis);
        return true;
      }
    }
    return false;
  }

  void bind(const Linear& linear, const Value& input, const TensorView& view, int axis) {
    int64_t rest = 0;
    // -1 apart: dividing the least number by it overflows, and no shape needs that many elements.
    const bool solvable = !__builtin_sub_overflow(view.dim(axis), linear.offset, &rest) &&
                          rest != std::numeric_limits<int64_t>::min() && rest % linear.scale == 0;
    if (!solvable) {
      fail(input, view, "; no ", linear.symbol, " makes axis ", axis, ", ", input.dim(axis).str(), ", equal to ",
           view.dim(axis));
    }
    const int64_t value = rest / linear.scale;
    const SymbolRange range = ranges_.at(linear.symbol);
    if (value < range.lo || value > range.hi) {
      fail(input, view, "; ", linear.symbol, " would be ", value, ", allowed are ", range.lo, " to ", range.hi);
    }
    bindings_.emplace(linear.symbol, value);
    found_in_.emplace(linear.symbol, input.name());
  }

  void check_shape(const Value& input, const TensorView& view) const {
    for (int axis = 0; axis < input.rank(); ++axis) {
      const int64_t expected = input.dim(axis).eval(bindings_);
      if (view.dim(axis) == expected) continue;
      std::string why;
      SymbolRanges symbols;
      collect_symbols(input.dim(axis), symbols);
      for (const auto& [symbol, range] : symbols) {
        why += "; " + symbol + " is " + std::to_string(bindings_.find(symbol)->second) + " by input " +
               found_in_.at(symbol);
      }
      fail(input, view, "; axis ", axis, " is ", view.dim(axis), ", not ", expected, why);
    }
  }

  const Graph& graph_;
  std::span<const TensorView> inputs_;
  SymbolRanges ranges_;
  Bindings bindings_;
  std::map<std::string, std::string, std::less<>> found_in_;  // symbol -> input that gave it
};

}  // namespace

SymbolRanges graph_symbols(const Graph& graph) {
  SymbolRanges ranges;
  for (const Value* input : graph.inputs()) add_symbols(*input, ranges);
  for (const Node* node : graph.nodes()) {
    for (const Value* output : node->outputs()) add_symbols(*output, ranges);
  }
  return ranges;
}

Bindings bind_symbols(const Graph& graph, std::span<const TensorView> inputs) { return Binder(graph, inputs).run(); }

void require_bindable(const Graph& graph) {
  Bindings known;
  for (bool more = true; more;) {
    more = false;
    for (const Value* input : graph.inputs()) {
      for (const Dim& dim : input->shape()) {
        // The value does not matter; 1 keeps floordiv and mod defined.
        const std::optional<Linear> linear = as_linear(substitute(dim, known));
        more = more || (linear && known.emplace(linear->symbol, 1).second);
      }
    }
  }
  for (const auto& [symbol, range] : graph_symbols(graph)) {
    require(known.contains(symbol), Code::kInvalidArgument, "[graph] ", graph.name(), ": ", symbol,
            " cannot be found from the shapes of the inputs; give an input an axis of that extent");
  }
}

}  // namespace atb
