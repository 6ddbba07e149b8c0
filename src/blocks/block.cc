// SPDX-License-Identifier: Apache-2.0
// Declared blocks: checks of their lists, and their graphs.
#include "blocks/block.h"

#include <algorithm>
#include <set>

#include "blocks/emitter.h"
#include "blocks/item.h"
#include "blocks/plugin_points.h"
#include "core/error.h"
#include "ir/schema.h"

namespace atb {
namespace {

constexpr int64_t kMaxBatch = int64_t{1} << 16;
constexpr int64_t kMaxTokens = int64_t{1} << 20;
constexpr int kMaxNesting = 16;

// Checks an item and what is inside it, and completes its attributes.
class Checker {
 public:
  void list(std::vector<BlockItem>& items, std::set<std::string>& names, int depth) {
    require(depth <= kMaxNesting, Code::kInvalidArgument, "[GraphOp] blocks in blocks, more than ", kMaxNesting,
            " deep");
    for (size_t index = 0; index < items.size(); ++index) item(items[index], index, names, depth);
  }

 private:
  static void name(const BlockItem& item, const std::string& label, std::set<std::string>& names) {
    if (item.name.empty()) return;
    const bool number = std::all_of(item.name.begin(), item.name.end(), [](char c) { return c >= '0' && c <= '9'; });
    require(item.name.find('.') == std::string::npos && !number, Code::kInvalidArgument, "[", item.kind, "] ", label,
            ": a name is the prefix of parameters, without dots and no number");
    require(names.insert(item.name).second || is_call_name(item.name), Code::kInvalidArgument, "[", item.kind, "] ",
            label, ": two items have this name");
  }

  void item(BlockItem& item, size_t index, std::set<std::string>& names, int depth) {
    const ItemDef& def = ItemRegistry::instance().get(item.kind);
    const std::string label = item.name.empty() ? std::to_string(index) : item.name;
    name(item, label, names);
    item.attrs = complete_attrs(item.kind, specs(def, item), item.attrs, label);
    const size_t count = item.branches.size();
    require(count >= def.min_branches && count <= def.max_branches, Code::kInvalidArgument, "[", item.kind, "] ", label,
            ": holds ", count, " lists of items; expected ", def.min_branches, " to ", def.max_branches);
    std::set<std::string> inner;  // a nested block has names of its own, a branch those around it
    for (std::vector<BlockItem>& branch : item.branches) list(branch, item.kind == "graph" ? inner : names, depth + 1);
  }

  // Those of the operator that a custom item is only where they are given: they have no defaults here.
  static std::vector<AttrSpec> specs(const ItemDef& def, const BlockItem& item) {
    std::string target;
    if (item.kind == "custom" && item.attrs.has("target")) target = item.attrs.text("target");
    std::vector<AttrSpec> all = attrs_of_item(def, target);
    const auto from_operator = all.begin() + static_cast<std::ptrdiff_t>(def.attrs.size());
    all.erase(
        std::remove_if(from_operator, all.end(), [&](const AttrSpec& spec) { return !item.attrs.has(spec.name); }),
        all.end());
    return all;
  }
};

template <class Predicate>
bool any_item(const std::vector<BlockItem>& items, const Predicate& predicate) {
  return std::any_of(items.begin(), items.end(), [&](const BlockItem& item) {
    return predicate(item) || std::any_of(item.branches.begin(), item.branches.end(),
                                          [&](const auto& branch) { return any_item(branch, predicate); });
  });
}

void add_parameter_names(const std::vector<BlockItem>& items, const ItemPrefix& prefix,
                         std::vector<std::string>& names) {
  for (size_t index = 0; index < items.size(); ++index) {
    const BlockItem& item = items[index];
    const std::string path = prefix.path(item, index);
    for (const ItemParameter& parameter : ItemRegistry::instance().get(item.kind).parameters) {
      if (parameter.flag.empty() || item.attrs.flag(parameter.flag)) names.push_back(path + "." + parameter.suffix);
    }
    for (size_t i = 0; i < item.branches.size(); ++i) {
      const bool nested = item.kind == "graph";
      add_parameter_names(item.branches[i], nested ? ItemPrefix::nested(path) : prefix.branch(path, i), names);
    }
  }
}

void check_call(const BlockCall& call) {
  const auto* const end = std::end(kBlockInputs);
  const std::string_view* at = std::begin(kBlockInputs);
  for (const auto& [name, type] : call.inputs) {
    const std::string_view* found = std::find(at, end, name);
    require(found != end, Code::kInvalidArgument, "[GraphOp] ", name,
            " is no input of a block, given twice, or out of order");
    at = found + 1;
  }
  require(!call.inputs.empty() && call.inputs[0].first == "x", Code::kInvalidArgument, "[GraphOp] x is missing");
  for (const auto& [name, type] : call.inputs) {
    const bool rank_is_free = name == "attention_mask" || name == "positions" || name == "x";
    require(rank_is_free || type.shape.size() == 3, Code::kInvalidArgument, "[GraphOp] ", name, " is ", type.str(),
            "; expected [batch, tokens, features]");
  }
}

}  // namespace

bool is_call_name(std::string_view name) {
  return name == "query" || name == "input" || name == "output" || name == "kv_cache" ||
         std::find(std::begin(kBlockInputs), std::end(kBlockInputs), name) != std::end(kBlockInputs);
}

Dim block_symbol(std::string_view name) {
  require(name == "B" || name == "T" || name == "S", Code::kInvalidArgument, "[GraphOp] symbol ", name,
          " is none of B, T, S");
  return Dim::symbol(std::string(name), 1, name == "B" ? kMaxBatch : kMaxTokens);
}

Block::Block(std::vector<BlockItem> items) : items_(std::move(items)) {
  require(!items_.empty(), Code::kInvalidArgument, "[GraphOp] a block needs one item or more");
  std::set<std::string> names;
  Checker().list(items_, names, 1);
}

BlockGraph Block::graph(const BlockCall& call) const {
  check_call(call);
  BlockGraph result;
  result.graph = std::make_unique<Graph>("GraphOp");
  Emitter(items_, call, result).build();
  return result;
}

std::vector<std::string> Block::parameter_names() const {
  std::vector<std::string> names;
  add_parameter_names(items_, {}, names);
  return names;
}

std::vector<std::string> Block::plugin_points() const { return PluginPoints(items_).names(); }

bool Block::cached() const {
  return any_item(items_,
                  [](const BlockItem& item) { return item.kind == "flash_attention" && item.attrs.flag("kv_cache"); });
}

bool Block::has(std::string_view kind) const {
  return any_item(items_, [&](const BlockItem& item) { return item.kind == kind; });
}

}  // namespace atb
