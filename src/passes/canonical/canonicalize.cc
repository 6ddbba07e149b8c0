// SPDX-License-Identifier: Apache-2.0
// The list of normal forms, and the fixed point over them.
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "passes/canonical/canonical.h"
#include "passes/dce.h"

namespace atb {
namespace {

using Form = bool (*)(const Node& node, Rewriter& rewriter);

struct NormalForm {
  Form apply;
  std::vector<std::string_view> roots;  // the operators it looks at; none: at all
};

std::vector<std::string_view> elementwise() {
  return {"add",          "sub",       "mul",  "div",        "pow",         "maximum",    "minimum", "where",
          "floor_divide", "remainder", "less", "less_equal", "logical_and", "logical_or", "equal"};
}

// What positions are computed through.
std::vector<std::string_view> index_arithmetic() {
  return {"add",       "sub",   "mul",    "neg",  "cast",   "reshape", "transpose",
          "broadcast", "slice", "concat", "take", "cumsum", "where"};
}

// Tried at each node in this order.
const std::vector<NormalForm>& local_forms() {
  static const std::vector<NormalForm> forms = {
      {constant_vector, {}},
      {affine_positions, index_arithmetic()},
      {constants_right, {"add", "mul"}},
      {neutral_operand, {"add", "sub", "mul", "div"}},
      {neutral_bool, {"logical_and", "logical_or", "logical_not"}},
      {needless_cast, {"cast"}},
      {whole_slice, {"slice"}},
      {take_of_range, {"take"}},
      {slice_of_concat, {"slice"}},
      {concat_of_slices, {"concat"}},
      {needless_broadcast, {"broadcast"}},
      {broadcast_operand, elementwise()},
      {reshape_of_reshape, {"reshape"}},
      {transpose_of_transpose, {"transpose"}},
      {identity_view, {"reshape", "transpose"}},
      {scale_by_mul, {"div"}},
      {negation, {"mul", "sub", "neg"}},
      {power_by_name, {"pow"}},
      {reciprocal_by_name, {"div", "reciprocal", "sqrt"}},
      {mean_of_sum, {"mul", "div"}},
      {kept_axes, {"reshape"}},
      {division_by_root, {"div"}},
      {sigmoid_chain, {"div", "reciprocal"}},
      {silu_chain, {"mul"}},
      {relu_chain, {"maximum"}},
      {gelu_chain, {"mul"}},
      {rms_norm_chain, {"mul"}},
      {norm_weight, {"mul"}},
      {layer_norm_chain, {"rms_norm"}},
      {norm_bias, {"add"}},
      {masked_fill, {"where"}},
      {scale_below_mask, {"mul", "div"}},
      {subtracted_mask, {"sub"}},
      {leading_rows, {"slice"}},
      {raise_rotary, {"add", "concat", "reshape"}},
      {embedding_of_broadcast, {"embedding"}},
      {embedding_of_widened, {"embedding"}},
      {linear_of_matmul, {"matmul"}},
      {matmul_of_transpose, {"matmul"}},
      {constant_weight, {"linear"}},
      {linear_bias, {"add"}},
      {view_below_rows, {"linear", "rms_norm", "layer_norm"}},
      {view_below_elements, {"add", "sub", "mul", "div", "silu", "gelu", "relu"}},
      {scale_on_scores, {"matmul"}},
      {scale_of_scale, {"mul", "div"}},
  };
  return forms;
}

// Takes apart what the local forms want to see whole, so tried when those have settled, and together with them.
const std::vector<NormalForm>& splitting_forms() {
  static const std::vector<NormalForm> forms = {
      {slice_above_transpose, {"slice"}},
      {linear_part, {"slice"}},
  };
  return forms;
}

class Canonicalizer {
 public:
  explicit Canonicalizer(Graph& graph) : graph_(graph), limit_(16 * static_cast<int64_t>(graph.nodes().size()) + 64) {}

  void add(const std::vector<NormalForm>& forms) {
    for (const NormalForm& form : forms) {
      if (form.roots.empty()) everywhere_.push_back(form.apply);
      for (const std::string_view op : form.roots) by_op_[op].push_back(form.apply);
    }
  }

  // Sweeps in execution order, so that operands are in normal form by the time their readers are seen.
  void to_fixed_point() {
    for (int64_t in_sweep = 1; in_sweep > 0;) {
      in_sweep = 0;
      gone_.clear();
      for (Node* node : std::vector<Node*>(graph_.nodes())) {
        if (gone_.count(node) == 0 && apply_one(node)) ++in_sweep;
      }
      total_ += in_sweep;
      if (total_ > limit_) throw_error(Code::kInternal, "[canonicalize] does not settle: ", total_, " rewrites");
    }
  }

  int64_t total() const { return total_; }

 private:
  // One edit at `node`, if any normal form applies.
  bool apply_one(Node* node) {
    if (apply_first(everywhere_, node)) return true;
    const auto forms = by_op_.find(node->op_name());
    return forms != by_op_.end() && apply_first(forms->second, node);
  }

  bool apply_first(const std::vector<Form>& forms, Node* node) {
    for (const Form form : forms) {
      Rewriter rewriter(graph_, node);
      if (!try_form(form, *node, rewriter)) continue;
      rewriter.retire({node});
      rewriter.retire_producers();
      if (rewriter.commit()) continue;
      gone_.insert(rewriter.erased().begin(), rewriter.erased().end());
      return true;
    }
    return false;
  }

  // A shape rule that refuses what a form builds (an extent that cannot be proven equal) means that it does not apply.
  static bool try_form(Form form, const Node& node, Rewriter& rewriter) {
    try {
      return form(node, rewriter);
    } catch (const Error& error) {
      if (error.code() == Code::kInternal) throw;
      return false;
    }
  }

  Graph& graph_;
  const int64_t limit_;
  int64_t total_ = 0;
  std::vector<Form> everywhere_;
  std::unordered_map<std::string_view, std::vector<Form>> by_op_;
  std::unordered_set<const Node*> gone_;
};

}  // namespace

int64_t canonicalize(Graph& graph) {
  Canonicalizer canonicalizer(graph);
  canonicalizer.add(local_forms());
  canonicalizer.to_fixed_point();
  eliminate_dead_code(graph);  // splitting asks who reads the parts
  canonicalizer.add(splitting_forms());
  canonicalizer.to_fixed_point();
  eliminate_dead_code(graph);  // and views that moved leave dead readers behind
  canonicalizer.to_fixed_point();
  return canonicalizer.total();
}

}  // namespace atb
