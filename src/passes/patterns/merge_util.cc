// SPDX-License-Identifier: Apache-2.0
// Merged constants are handles to the parts' bytes; only a zero bias for a linear without one has bytes of its own.
#include "passes/patterns/merge_util.h"

#include <algorithm>

namespace atb {
namespace {

std::string type_of_elements(const Type& type) { return Type{type.dtype, {}, type.encoding}.str(); }

std::optional<Mismatch> check_one_type(const Match& match, const std::vector<std::string>& linears,
                                       const char* suffix) {
  const Value* first = nullptr;
  for (const std::string& linear : linears) {
    const Value* value = match.value(linear + suffix);
    if (value == nullptr) continue;
    if (first == nullptr) first = value;
    if (value->type().dtype != first->type().dtype || value->type().encoding != first->type().encoding) {
      return Mismatch{match.node(linear), "@" + value->name() + " " + type_of_elements(value->type()),
                      type_of_elements(first->type()) + " as @" + first->name()};
    }
  }
  return std::nullopt;
}

// A weight with a second reader would be packed twice, merged and alone.
std::optional<Mismatch> check_one_reader(const Match& match, const std::vector<std::string>& linears) {
  for (const std::string& linear : linears) {
    const Value* weight = match.value(linear + " weight");
    if (weight->graph()->is_output(weight)) {
      return Mismatch{match.node(linear), "@" + weight->name() + " is a graph output", "one reader"};
    }
    for (const Use& use : weight->uses()) {
      if (use.node == match.node(linear)) continue;
      return Mismatch{match.node(linear), "@" + weight->name() + " also read by " + use.node->name(), "one reader"};
    }
  }
  return std::nullopt;
}

ConstantRef zeros_like(const ConstantRef& like, int64_t count) {
  const std::string name = "zeros";
  if (like->absent()) return Constant::absent(name, like->dtype(), nullptr, {count});
  std::vector<std::byte> bytes(static_cast<size_t>(count) * dtype_size(like->dtype()));
  return Constant::from_storage(name, like->dtype(), nullptr, {count}, storage_from_bytes(std::move(bytes)), 0);
}

// What a bias that is not there would be called, after one that is: {"l.up.weight", "l.gate.bias"} gives "l.up.bias".
std::string bias_name(const std::string& weight, const std::string& like) {
  const size_t stem = weight.rfind('.');
  const size_t ending = like.rfind('.');
  if (stem == std::string::npos || ending == std::string::npos) return weight + "_bias";
  return weight.substr(0, stem) + like.substr(ending);
}

std::vector<std::string> dotted(const std::string& name) {
  std::vector<std::string> parts(1);
  for (const char c : name) {
    if (c == '.') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

}  // namespace

void require_mergeable(Pattern& pattern, const std::vector<std::string>& linears) {
  pattern.where("weights of one type", [linears](const Match& m) { return check_one_type(m, linears, " weight"); });
  pattern.where("biases of one type", [linears](const Match& m) { return check_one_type(m, linears, " bias"); });
  pattern.where("weights not shared", [linears](const Match& m) { return check_one_reader(m, linears); });
}

Value* merged_weight(Rewriter& rewriter, const Match& match, const std::vector<std::string>& linears) {
  std::vector<ConstantRef> parts;
  std::vector<std::string> names;
  for (const std::string& linear : linears) {
    parts.push_back(match.value(linear + " weight")->constant());
    names.push_back(parts.back()->name());
  }
  return rewriter.constant(Constant::concat_rows(merged_name(names), parts));
}

Value* merged_bias(Rewriter& rewriter, const Match& match, const std::vector<std::string>& linears) {
  ConstantRef like;
  for (const std::string& linear : linears) {
    const Value* bias = match.value(linear + " bias");
    if (bias != nullptr && like == nullptr) like = bias->constant();
  }
  if (like == nullptr) return nullptr;
  std::vector<ConstantRef> parts;
  std::vector<std::string> names;
  for (const std::string& linear : linears) {
    const Value* bias = match.value(linear + " bias");
    const int64_t rows = match.node(linear)->output()->dim(-1).constant();
    parts.push_back(bias != nullptr ? bias->constant() : zeros_like(like, rows));
    names.push_back(bias != nullptr ? bias->name() : bias_name(match.value(linear + " weight")->name(), like->name()));
  }
  return rewriter.constant(Constant::concat_rows(merged_name(names), parts));
}

std::string merged_name(const std::vector<std::string>& names) {
  std::vector<std::vector<std::string>> parts;
  for (const std::string& name : names) parts.push_back(dotted(name));
  const size_t length = parts[0].size();
  const bool alike = std::all_of(parts.begin(), parts.end(), [&](const auto& p) { return p.size() == length; });
  std::string result;
  if (!alike) {
    for (const std::string& name : names) result += (result.empty() ? "" : "_") + name;
    return result;
  }
  for (size_t i = 0; i < length; ++i) {
    std::string piece = parts[0][i];
    const bool same = std::all_of(parts.begin(), parts.end(), [&](const auto& p) { return p[i] == piece; });
    for (size_t j = 1; !same && j < parts.size(); ++j) piece += "_" + parts[j][i];
    result += (i == 0 ? "" : ".") + piece;
  }
  return result;
}

}  // namespace atb
