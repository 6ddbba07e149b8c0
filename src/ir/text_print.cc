// SPDX-License-Identifier: Apache-2.0
// Prints graphs as text. Everything is spelled in one way, so that equal graphs print equal text.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "ir/_text_common.h"
#include "ir/op.h"
#include "ir/text.h"

namespace atb {
namespace text {
namespace {

template <class Real>
std::string shortest(Real value) {
  if (std::isnan(value)) return "nan";
  std::array<char, 40> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string digits(buffer.data(), result.ptr);
  if (digits.find_first_of(".en") == std::string::npos) digits += ".0";
  return digits;
}

}  // namespace

std::string quoted(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string printed_name(std::string_view name) { return is_plain_name(name) ? std::string(name) : quoted(name); }

std::string printed_real(double value) { return shortest(value); }
std::string printed_real(float value) { return shortest(value); }

}  // namespace text

namespace {

std::string value_ref(const Value* value) {
  if (value == nullptr) return "_";
  return (value->is_constant() ? "@" : "%") + text::printed_name(value->name());
}

// [item, item, ...] with print(item) for each.
template <class Items, class Print>
std::string list(const Items& items, Print print_item) {
  std::string out = "[";
  for (size_t i = 0; i < items.size(); ++i) out += (i == 0 ? "" : ", ") + print_item(items[i]);
  return out + "]";
}

struct AttrPrinter {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return text::printed_real(value); }
  std::string operator()(const std::string& value) const { return text::quoted(value); }
  std::string operator()(const std::vector<int64_t>& values) const {
    return list(values, [](int64_t v) { return std::to_string(v); });
  }
  std::string operator()(const std::vector<double>& values) const {
    return list(values, [](double v) { return text::printed_real(v); });
  }
  std::string operator()(const Shape& shape) const { return to_string(shape); }
};

// Equal, with NaN equal to NaN.
bool same_attr(const Attr& a, const Attr& b) {
  return a.index() == b.index() && std::visit(AttrPrinter{}, a) == std::visit(AttrPrinter{}, b);
}

// {layer=0, scope="...", eps=1e-05}; attributes at their default are left out, and so are the braces of nothing.
std::string attr_list(const Node& node) {
  std::vector<std::string> items;
  if (node.layer() != -1) items.push_back("layer=" + std::to_string(node.layer()));
  if (!node.scope().empty()) items.push_back("scope=" + text::quoted(node.scope()));
  for (const auto& item : node.attrs().items()) {  // clang before 16 does not capture structured bindings
    const std::string& name = item.first;
    const Attr& value = item.second;
    const auto& specs = node.op().attrs;
    const auto spec = std::find_if(specs.begin(), specs.end(), [&](const AttrSpec& s) { return s.name == name; });
    const bool is_default = spec != specs.end() && !spec->required && same_attr(spec->default_value, value);
    if (!is_default) items.push_back(name + "=" + std::visit(AttrPrinter{}, value));
  }
  if (items.empty()) return {};
  std::string out = " {";
  for (size_t i = 0; i < items.size(); ++i) out += (i == 0 ? "" : ", ") + items[i];
  return out + "}";
}

template <class Element>
Element element_at(const std::byte* bytes, int64_t i) {
  Element element;
  std::memcpy(&element, bytes + static_cast<size_t>(i) * sizeof(element), sizeof(element));
  return element;
}

std::string element_text(DType dtype, const std::byte* bytes, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return text::printed_real(element_at<float>(bytes, i));
    case DType::kF64:
      return text::printed_real(element_at<double>(bytes, i));
    case DType::kF16:
      return text::printed_real(f16_to_f32(element_at<uint16_t>(bytes, i)));
    case DType::kBF16:
      return text::printed_real(bf16_to_f32(element_at<uint16_t>(bytes, i)));
    case DType::kI8:
      return std::to_string(element_at<int8_t>(bytes, i));
    case DType::kI32:
      return std::to_string(element_at<int32_t>(bytes, i));
    case DType::kI64:
      return std::to_string(element_at<int64_t>(bytes, i));
    default:
      return std::to_string(element_at<uint8_t>(bytes, i));
  }
}

// " = 0.125" or " = [1.0, 2.0]" (row-major whatever the rank) for small plain constants.
std::string constant_values(const Constant& constant) {
  const int64_t elements = constant.num_rows() * constant.row_elems();
  if (constant.absent() || constant.encoding() != nullptr || elements > text::kMaxPrintedElements) return {};
  std::vector<std::string> values;
  for (int64_t row = 0; row < constant.num_rows() && elements > 0; ++row) {
    const std::byte* bytes = constant.row(row);
    for (int64_t i = 0; i < constant.row_elems(); ++i) values.push_back(element_text(constant.dtype(), bytes, i));
  }
  if (constant.shape().empty()) return " = " + values[0];
  return " = " + list(values, [](const std::string& value) { return value; });
}

void collect(const Shape& shape, SymbolRanges& ranges) {
  for (const Dim& extent : shape) collect_symbols(extent, ranges);
}

// "  symbols B in [1, 64], T in [1, 8192]\n"
std::string symbol_line(const Graph& graph) {
  SymbolRanges ranges;
  for (const Value* input : graph.inputs()) collect(input->shape(), ranges);
  for (const Node* node : graph.nodes()) {
    for (const Value* output : node->outputs()) collect(output->shape(), ranges);
    for (const auto& [name, value] : node->attrs().items()) {
      if (const Shape* shape = std::get_if<Shape>(&value)) collect(*shape, ranges);
    }
  }
  if (ranges.empty()) return {};
  std::string out;
  for (const auto& [name, range] : ranges) {
    out += (out.empty() ? "  symbols " : ", ") + name + " in [" + std::to_string(range.lo) + ", " +
           std::to_string(range.hi) + "]";
  }
  return out + "\n";
}

}  // namespace

std::string print(const Node& node) {
  std::string out;
  for (const Value* output : node.outputs()) out += (out.empty() ? "" : ", ") + value_ref(output);
  out += " = " + node.op_name() + "(";
  for (size_t i = 0; i < node.inputs().size(); ++i) out += (i == 0 ? "" : ", ") + value_ref(node.inputs()[i]);
  out += ")" + attr_list(node) + " : ";
  for (size_t i = 0; i < node.outputs().size(); ++i) out += (i == 0 ? "" : ", ") + node.output(i)->type().str();
  return out;
}

std::string print(const Graph& graph) {
  std::string out = "graph @" + text::printed_name(graph.name()) + "(";
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Value* input = graph.inputs()[i];
    out += (i == 0 ? "" : ", ") + value_ref(input) + ": " + input->type().str();
  }
  out += ") {\n" + symbol_line(graph);
  for (const Value* constant : graph.constants()) {
    out += "  const " + value_ref(constant) + " : " + constant->type().str() + constant_values(*constant->constant()) +
           "\n";
  }
  for (const Node* node : graph.nodes()) out += "  " + print(*node) + "\n";
  out += "  return";
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const Value* output = graph.outputs()[i];
    out += (i == 0 ? " " : ", ") + value_ref(output);
    if (graph.output_names()[i] != output->name()) out += " as " + text::printed_name(graph.output_names()[i]);
  }
  return out + "\n}\n";
}

}  // namespace atb
