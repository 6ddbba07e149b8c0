// SPDX-License-Identifier: Apache-2.0
// Normal form: rotary position embedding is `rotary` on [.., T, H, D] with tables by `rotary_table`.
#include <algorithm>

#include "passes/analysis/rotary_form.h"
#include "passes/canonical/canonical.h"

namespace atb {
namespace {

// x -> [B, T, H, D] and back. The batch is the first axis unless that is the one of tokens.
struct HeadsView {
  std::vector<int64_t> perm;  // batch, tokens, heads..., features
  Shape merged;               // with one head axis
  Shape permuted;
};

HeadsView heads_view(const Value& x, int64_t tokens) {
  HeadsView view;
  const int64_t rank = x.rank();
  if (tokens > 0) view.perm.push_back(0);
  view.perm.push_back(tokens);
  Dim heads = 1;
  for (const int64_t axis : view.perm) view.merged.push_back(x.shape()[static_cast<size_t>(axis)]);
  for (int64_t axis = tokens > 0 ? 1 : 0; axis + 1 < rank; ++axis) {
    if (axis == tokens) continue;
    view.perm.push_back(axis);
    heads = heads * x.shape()[static_cast<size_t>(axis)];
  }
  view.perm.push_back(rank - 1);
  view.merged.push_back(heads);
  view.merged.push_back(x.dim(-1));
  for (const int64_t axis : view.perm) view.permuted.push_back(x.shape()[static_cast<size_t>(axis)]);
  return view;
}

std::vector<int64_t> inverse(const std::vector<int64_t>& perm) {
  std::vector<int64_t> result(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) result[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return result;
}

// Where the tokens are in x, if its positions are of tokens, or of batch and tokens; -1 otherwise.
int64_t token_axis(const RotaryForm& form) {
  const Shape& positions = form.table.positions->shape();
  int64_t tokens = -1;
  bool batched = false;
  for (size_t axis = positions.size(); axis-- > 0;) {
    if (positions[axis] == Dim(1)) continue;
    const int64_t at = form.x->rank() - 1 - form.position_depths[axis];
    if (form.position_depths[axis] <= 0 || at < 0 || !(positions[axis] == form.x->shape()[static_cast<size_t>(at)])) {
      return -1;
    }
    if (tokens < 0) {
      tokens = at;
    } else if (batched || at != 0 || tokens == 0) {
      return -1;
    } else {
      batched = true;
    }
  }
  return tokens;
}

// [T] or [B, T], without units.
Value* squeezed(Rewriter& rewriter, Value* positions) {
  Shape shape;
  for (const Dim& extent : positions->shape()) {
    if (!(extent == Dim(1))) shape.push_back(extent);
  }
  return rewriter.reshape(positions, std::move(shape));
}

// A constant [R/2]: the one that they were read from if it is just that, or one made before.
Value* frequencies_of(Rewriter& rewriter, const RotaryForm& form) {
  const std::vector<int64_t> shape = {static_cast<int64_t>(form.frequencies.size())};
  const auto is_it = [&](const Value* value) {
    return value != nullptr && value->is_constant() && !value->constant()->absent() &&
           value->type().dtype == DType::kF32 && value->constant()->shape() == shape &&
           value->constant()->to_f32() == form.frequencies;
  };
  if (is_it(form.table.inv_freq)) return form.table.inv_freq;
  for (const Node* node : rewriter.graph().nodes()) {
    if (node->is("rotary_table") && is_it(node->input(1))) return node->input(1);
  }
  const std::string name = form.table.inv_freq == nullptr ? "inv_freq" : form.table.inv_freq->name();
  return rewriter.constant(Constant::from_f32(name, shape, form.frequencies));
}

// A constant [positions, R/2] of those columns, times `scale`: the table itself if it is just that, or one made before.
Value* columns_of(Rewriter& rewriter, const RotaryColumns& columns, double scale) {
  const Constant& table = *columns.table->constant();
  const std::vector<float> all = table.to_f32();
  const auto width = static_cast<size_t>(table.shape()[1]);
  std::vector<float> data;
  for (size_t row = 0; row + width <= all.size(); row += width) {
    for (const int64_t column : columns.columns) {
      data.push_back(all[row + static_cast<size_t>(column)] * static_cast<float>(scale));
    }
  }
  const std::vector<int64_t> shape = {table.shape()[0], static_cast<int64_t>(columns.columns.size())};
  if (table.dtype() == DType::kF32 && shape == table.shape() && data == all) return columns.table;
  const std::string name = table.name() + ".columns";
  for (const Node* node : rewriter.graph().nodes()) {
    const Value* made = node->is("embedding") ? node->input(1) : nullptr;
    if (made == nullptr || !made->is_constant() || made->constant()->name() != name) continue;
    if (made->constant()->shape() == shape && made->constant()->to_f32() == data) return node->input(1);
  }
  return rewriter.constant(Constant::from_f32(name, shape, data));
}

struct Tables {
  Value* cos;
  Value* sin;
};

Tables tables_of(Rewriter& rewriter, const RotaryForm& form) {
  Value* positions = squeezed(rewriter, form.table.positions);
  if (form.cos.table != nullptr) {
    const auto rows = [&](const RotaryColumns& columns) {
      return rewriter.value("embedding", {positions, columns_of(rewriter, columns, form.table.scale)});
    };
    return {rows(form.cos), rows(form.sin)};
  }
  const Node* table =
      rewriter.node("rotary_table", {positions, frequencies_of(rewriter, form)}, {{"scale", form.table.scale}});
  return {table->output(0), table->output(1)};
}

// The rest of a head is about to be put behind this part: the whole is raised at once.
bool is_part_of_a_head(const Value* value) {
  return std::any_of(value->uses().begin(), value->uses().end(), [](const Use& use) {
    if (!use.node->is("concat")) return false;
    const int64_t axis = use.node->attrs().integer("axis");
    return axis == -1 || axis + 1 == use.node->output()->rank();
  });
}

}  // namespace

bool raise_rotary(const Node& node, Rewriter& rewriter) {
  if (!is_float(node.output()->type().dtype) || is_part_of_a_head(node.output())) return false;
  if (node.is("reshape")) {  // of pairs put together again
    const Node* inner = node.input(0)->producer();
    if (inner == nullptr || !(inner->is("concat") || inner->is("add"))) return false;
  }
  const std::optional<RotaryForm> form = rotary_form(node.output());
  if (!form) return false;
  const int64_t tokens = token_axis(*form);
  if (tokens < 0) return false;
  Value* x = form->x;
  if (!(x->dim(-1) == Dim(form->size))) {
    const Shape bounds = {Dim(form->first), Dim(form->first + form->size)};
    x = rewriter.value("slice", {x}, {{"axis", int64_t{x->rank() - 1}}, {"bounds", bounds}});
  }
  if (!(x->shape() == node.output()->shape())) return false;
  const HeadsView view = heads_view(*x, tokens);
  const Tables tables = tables_of(rewriter, *form);
  x = rewriter.reshape(rewriter.transpose(x, view.perm), view.merged);
  x = rewriter.value("rotary", {x, tables.cos, tables.sin}, {{"interleaved", form->interleaved}});
  x = rewriter.transpose(rewriter.reshape(x, view.permuted), inverse(view.perm));
  rewriter.replace(node.output(), x);
  return true;
}

}  // namespace atb
