// SPDX-License-Identifier: Apache-2.0
// Reads graph text. Nothing in the text is trusted: sizes only make types, never allocations.
#include <cstring>
#include <map>

#include "core/tensor.h"
#include "ir/_text_common.h"
#include "ir/_text_lexer.h"
#include "ir/op.h"
#include "ir/text.h"
#include "ir/verifier.h"

namespace atb {
namespace {

constexpr size_t kMaxText = size_t{64} << 20;
constexpr size_t kMaxList = size_t{1} << 16;
constexpr size_t kMaxOutputs = 1024;

// A node line as read.
struct NodeLine {
  std::vector<std::string> outputs;
  const OpDef* op = nullptr;
  std::vector<Value*> inputs;
  Attrs attrs;
  int layer = -1;
  std::string scope;
  std::vector<Type> types;
};

class GraphParser {
 public:
  explicit GraphParser(std::string_view text) : lexer_(text) {}

  std::unique_ptr<Graph> parse() {
    try {
      parse_graph();
      verify(*graph_, "parsing");
    } catch (const Error& error) {
      if (std::string_view(error.what()).starts_with("[graph text]")) throw;
      lexer_.fail(error.what());  // from an operator's checks, a dim, a constant or the verifier
    }
    return std::move(graph_);
  }

  std::vector<Type> parse_types() {
    std::vector<Type> types;
    if (lexer_.at_end()) return types;
    do {
      types.push_back(parse_type());
      if (types.size() > kMaxOutputs) lexer_.fail("too many types");
    } while (lexer_.take(','));
    if (!lexer_.at_end()) lexer_.fail("text after the last type");
    return types;
  }

 private:
  void parse_graph() {
    if (!lexer_.take_word("graph")) lexer_.fail("expected graph @name(...) {");
    lexer_.expect('@');
    graph_ = std::make_unique<Graph>(lexer_.name());
    // Symbols are declared behind the inputs that use them, so the inputs are made when both are known.
    std::vector<std::pair<std::string, Type>> inputs = parse_inputs();
    lexer_.expect('{');
    while (lexer_.take_word("symbols")) parse_symbols();
    symbols_known_ = true;
    for (auto& [name, type] : inputs) {
      type.shape = ranged(type.shape);
      define("%", name, graph_->add_input(name, type));
    }
    while (lexer_.take_word("const")) parse_constant();
    while (!lexer_.take_word("return")) parse_node();
    parse_return();
    if (!lexer_.at_end()) lexer_.fail("text after the end of the graph");
  }

  std::vector<std::pair<std::string, Type>> parse_inputs() {
    std::vector<std::pair<std::string, Type>> inputs;
    lexer_.expect('(');
    if (lexer_.take(')')) return inputs;
    do {
      lexer_.expect('%');
      std::string name = lexer_.name();
      lexer_.expect(':');
      inputs.emplace_back(std::move(name), parse_type());
      if (inputs.size() > kMaxOutputs) lexer_.fail("too many inputs");
    } while (lexer_.take(','));
    lexer_.expect(')');
    return inputs;
  }

  void parse_symbols() {
    do {
      const std::string name(lexer_.word());
      if (!lexer_.take_word("in")) lexer_.fail("expected in [lo, hi]");
      lexer_.expect('[');
      const int64_t lo = lexer_.integer();
      lexer_.expect(',');
      const int64_t hi = lexer_.integer();
      lexer_.expect(']');
      if (!symbols_.emplace(name, Dim::symbol(name, lo, hi)).second) lexer_.fail("symbol " + name + " appears twice");
    } while (lexer_.take(','));
  }

  // Symbols as declared; those that are not get the range that Dim::symbol gives by default.
  Shape ranged(const Shape& shape) {
    Shape result;
    for (const Dim& extent : shape) {
      SymbolRanges used;
      collect_symbols(extent, used);
      for (const auto& [name, range] : used) symbols_.try_emplace(name, Dim::symbol(name));
      result.push_back(extent.substitute(symbols_));
    }
    return result;
  }

  Shape parse_shape() {
    Shape shape;
    lexer_.expect('[');
    if (lexer_.take(']')) return shape;
    do {
      if (shape.size() == kMaxRank) lexer_.fail("a rank over " + std::to_string(kMaxRank));
      shape.push_back(Dim::parse(lexer_.dim_text()));
    } while (lexer_.take(','));
    lexer_.expect(']');
    return symbols_known_ ? ranged(shape) : shape;
  }

  Type parse_type() {
    const std::string_view name = lexer_.word();
    const std::optional<DType> dtype = dtype_from_name(name);
    if (!dtype) lexer_.fail("no dtype " + text::quoted(name));
    Type type{*dtype, {}, nullptr};
    if (*dtype == DType::kState) return type;
    type.shape = parse_shape();
    for (const Encoding* encoding : encodings()) {
      if (type.encoding == nullptr && lexer_.take_word(encoding->name)) type.encoding = encoding;
    }
    return type;
  }

  void parse_constant() {
    lexer_.expect('@');
    const std::string name = lexer_.name();
    lexer_.expect(':');
    const Type type = parse_type();
    std::vector<int64_t> shape;
    for (const Dim& extent : type.shape) {
      if (!extent.is_constant()) lexer_.fail("constant " + name + " has a symbol in its shape");
      shape.push_back(extent.constant());
    }
    ConstantRef constant = Constant::absent(name, type.dtype, type.encoding, shape);
    if (lexer_.take('=')) constant = parse_values(*constant);
    define("@", name, graph_->add_constant(constant));
  }

  ConstantRef parse_values(const Constant& like) {
    const int64_t elements = like.num_rows() * like.row_elems();
    if (like.encoding() != nullptr || elements > text::kMaxPrintedElements) {
      lexer_.fail("only plain constants of at most " + std::to_string(text::kMaxPrintedElements) +
                  " elements have values");
    }
    std::vector<std::byte> bytes;
    const bool scalar = like.shape().empty();
    if (!scalar) lexer_.expect('[');
    for (int64_t i = 0; i < elements; ++i) {
      if (i > 0) lexer_.expect(',');
      parse_element(like.dtype(), bytes);
    }
    if (!scalar) lexer_.expect(']');
    return Constant::from_storage(like.name(), like.dtype(), nullptr, like.shape(),
                                  storage_from_bytes(std::move(bytes)), 0);
  }

  template <class Element>
  static void append(Element element, std::vector<std::byte>& bytes) {
    const auto* from = reinterpret_cast<const std::byte*>(&element);
    bytes.insert(bytes.end(), from, from + sizeof(element));
  }

  template <class Element>
  void parse_integer_element(std::vector<std::byte>& bytes) {
    const int64_t value = lexer_.integer();
    if (value != static_cast<int64_t>(static_cast<Element>(value))) lexer_.fail("a value does not fit its dtype");
    append(static_cast<Element>(value), bytes);
  }

  void parse_element(DType dtype, std::vector<std::byte>& bytes) {
    switch (dtype) {
      case DType::kF32:
        return append(lexer_.real_f32(), bytes);
      case DType::kF64:
        return append(lexer_.real(), bytes);
      case DType::kF16:
        return append(f32_to_f16(lexer_.real_f32()), bytes);
      case DType::kBF16:
        return append(f32_to_bf16(lexer_.real_f32()), bytes);
      case DType::kI8:
        return parse_integer_element<int8_t>(bytes);
      case DType::kI32:
        return parse_integer_element<int32_t>(bytes);
      case DType::kI64:
        return parse_integer_element<int64_t>(bytes);
      default:
        return parse_integer_element<uint8_t>(bytes);
    }
  }

  void define(std::string_view sigil, const std::string& name, Value* value) {
    const std::string label = std::string(sigil) + name;
    if (!values_.emplace(label, value).second) lexer_.fail(label + " is defined twice");
  }

  Value* parse_value() {
    if (lexer_.take_word("_")) return nullptr;
    const std::string_view sigil = lexer_.take('@') ? "@" : "%";
    if (sigil == "%") lexer_.expect('%');
    const std::string label = std::string(sigil) + lexer_.name();
    const auto it = values_.find(label);
    if (it == values_.end()) lexer_.fail(label + " is used before it is defined");
    return it->second;
  }

  void parse_node() {
    NodeLine line;
    do {
      lexer_.expect('%');
      line.outputs.push_back(lexer_.name());
      if (line.outputs.size() > kMaxOutputs) lexer_.fail("too many outputs");
    } while (lexer_.take(','));
    lexer_.expect('=');
    const std::string_view op = lexer_.word();
    line.op = OpRegistry::instance().find(op);
    if (line.op == nullptr) lexer_.fail("no operator " + text::quoted(op));
    lexer_.expect('(');
    if (!lexer_.take(')')) {
      do {
        line.inputs.push_back(parse_value());
        if (line.inputs.size() > kMaxOutputs) lexer_.fail("too many operands");
      } while (lexer_.take(','));
      lexer_.expect(')');
    }
    if (lexer_.take('{') && !lexer_.take('}')) {
      do {
        parse_attr(line);
      } while (lexer_.take(','));
      lexer_.expect('}');
    }
    lexer_.expect(':');
    do {
      line.types.push_back(parse_type());
      if (line.types.size() > kMaxOutputs) lexer_.fail("too many types");
    } while (lexer_.take(','));
    add_node(line);
  }

  void add_node(NodeLine& line) {
    Node* node = graph_->add_node(*line.op, std::move(line.inputs), std::move(line.attrs), line.outputs[0]);
    node->set_layer(line.layer);
    node->set_scope(std::move(line.scope));
    if (node->outputs().size() != line.outputs.size() || node->outputs().size() != line.types.size()) {
      lexer_.fail(node->name() + " has " + std::to_string(node->outputs().size()) + " outputs, the line names " +
                  std::to_string(line.outputs.size()) + " with " + std::to_string(line.types.size()) + " types");
    }
    for (size_t i = 0; i < line.outputs.size(); ++i) {
      Value* output = node->output(i);
      if (!(output->type() == line.types[i])) {
        lexer_.fail("%" + line.outputs[i] + " is " + output->type().str() + ", not " + line.types[i].str());
      }
      graph_->rename(output, line.outputs[i]);
      define("%", line.outputs[i], output);
    }
  }

  void parse_attr(NodeLine& line) {
    const std::string name(lexer_.word());
    lexer_.expect('=');
    if (name == "layer") {
      const int64_t layer = lexer_.integer();
      if (layer < -1 || layer > (1 << 20)) lexer_.fail("layer " + std::to_string(layer) + " is out of range");
      line.layer = static_cast<int>(layer);
      return;
    }
    if (name == "scope") {
      line.scope = lexer_.quoted_text();
      return;
    }
    for (const AttrSpec& spec : line.op->attrs) {
      if (spec.name != name) continue;
      if (line.attrs.has(name)) lexer_.fail("attribute " + name + " appears twice");
      line.attrs.set(name, parse_attr_value(spec.kind));
      return;
    }
    lexer_.fail(line.op->name + " has no attribute " + text::quoted(name));
  }

  template <class Item, class Parse>
  std::vector<Item> parse_list(Parse parse_item) {
    std::vector<Item> items;
    lexer_.expect('[');
    if (lexer_.take(']')) return items;
    do {
      items.push_back(parse_item());
      if (items.size() > kMaxList) lexer_.fail("a list is too long");
    } while (lexer_.take(','));
    lexer_.expect(']');
    return items;
  }

  Attr parse_attr_value(AttrKind kind) {
    switch (kind) {
      case AttrKind::kBool:
        return lexer_.boolean();
      case AttrKind::kInt:
        return lexer_.integer();
      case AttrKind::kReal:
        return lexer_.real();
      case AttrKind::kText:
        return lexer_.quoted_text();
      case AttrKind::kInts:
        return parse_list<int64_t>([this] { return lexer_.integer(); });
      case AttrKind::kReals:
        return parse_list<double>([this] { return lexer_.real(); });
      case AttrKind::kShape:
        return parse_shape();
    }
    lexer_.fail("an attribute of unknown kind");
  }

  void parse_return() {
    std::vector<Value*> outputs;
    std::vector<std::string> names;
    if (!lexer_.take('}')) {
      do {
        Value* value = parse_value();
        if (value == nullptr) lexer_.fail("an output is missing");
        outputs.push_back(value);
        names.push_back(lexer_.take_word("as") ? lexer_.name() : value->name());
        if (outputs.size() > kMaxOutputs) lexer_.fail("too many outputs");
      } while (lexer_.take(','));
      lexer_.expect('}');
    }
    graph_->set_outputs(std::move(outputs), std::move(names));
  }

  text::Lexer lexer_;
  std::unique_ptr<Graph> graph_;
  std::map<std::string, Dim, std::less<>> symbols_;
  bool symbols_known_ = false;  // their declarations are behind us
  std::map<std::string, Value*, std::less<>> values_;
};

}  // namespace

std::unique_ptr<Graph> parse_graph(std::string_view text) {
  require(text.size() <= kMaxText, Code::kInvalidArgument, "[graph text] ", text.size(), " bytes: at most ", kMaxText);
  return GraphParser(text).parse();
}

std::vector<Type> parse_types(std::string_view text) {
  require(text.size() <= kMaxText, Code::kInvalidArgument, "[graph text] ", text.size(), " bytes: at most ", kMaxText);
  return GraphParser(text).parse_types();
}

}  // namespace atb
