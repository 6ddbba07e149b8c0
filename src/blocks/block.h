// SPDX-License-Identifier: Apache-2.0
// Declared blocks: a list of items (LayerNorm, Linear, FlashAttention, ...) that becomes a plain graph of the operators
// that any front door emits. What they are made of is in items/, one file an item.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace atb {

// One item of the list. `branches` holds lists of further items: the alternatives of a branch, the list of a nested
// graph, the rotary embedding of an attention.
struct BlockItem {
  std::string kind;  // "linear"; ItemRegistry knows them
  std::string name;  // prefix of its parameters; empty: its index is
  Attrs attrs{};
  std::vector<std::vector<BlockItem>> branches{};
};

// How a parameter that nobody has given starts.
struct ParameterInit {
  enum class Kind { kZeros, kOnes, kUniform, kNormal };
  Kind kind = Kind::kZeros;
  double scale = 1.0;  // of uniform: values in [-scale, scale]; of normal: the deviation
};

struct BlockParameter {
  std::string name;  // "qkv_proj.weight"
  std::vector<int64_t> shape;
  ParameterInit init;
};

// An attention that keeps keys and values of earlier calls.
struct CachedAttention {
  std::string scope;  // of its nodes
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
};

// Code from outside at a point of the block ("pre_attention": see Block::plugin_points): kernels of external nodes, the
// host program's or a loaded library's, that give as many values of the same types as they take.
struct BlockPlugin {
  std::string point;
  std::string before{};  // on the inputs of the point's item; empty: none
  std::string after{};   // on its outputs
  std::string within{};  // prefix of a nested block whose point it is; empty: the whole block's
  bool told = false;     // the kernels are told of the call: atb_context
  int64_t layer = -1;    // of the model, as they are told; -1: none
};

// A form of call: the inputs that it gives, with dims over B (batch), T (tokens) and S (keys, where their number is
// another one; with a cache, all that it then holds, which a mask is for).
struct BlockCall {
  std::vector<std::pair<std::string, Type>> inputs;      // names of kBlockInputs, x first, in that order
  DType dtype = DType::kF32;                             // of the parameters
  std::vector<BlockPlugin> plugins{};                    // at one item in this order
  std::map<std::string, std::vector<int64_t>> shapes{};  // of parameters that have theirs already
};

inline constexpr std::string_view kBlockInputs[] = {"x", "key", "value", "residual", "attention_mask", "positions"};

// B, T or S with its range, for the types of a call.
Dim block_symbol(std::string_view name);

struct BlockGraph {
  std::unique_ptr<Graph> graph;  // plain; inputs as in the call, output "output"; constants absent, named as parameters
  std::vector<BlockParameter> parameters;  // in order of first use
  std::vector<CachedAttention> cached;     // in order: slot i is cached[i]
  std::vector<std::string> warnings;       // what is right as written, but rarely meant
};

class Block {
 public:
  // kInvalidArgument names the item: an unknown kind, an attribute that is not the kind's, names that cannot be
  // parameters or are there twice, lists where none belong.
  explicit Block(std::vector<BlockItem> items);

  const std::vector<BlockItem>& items() const { return items_; }
  // The graph of a form of call. kInvalidArgument names the item, the actual and the expected shape, the input that
  // nothing reads, or a plugin's point that is none.
  BlockGraph graph(const BlockCall& call) const;
  // Names of all parameters in the order of the items; they do not depend on shapes.
  std::vector<std::string> parameter_names() const;
  // "pre_X" and "post_X" for each item, nested ones too: X is its name (its index, where it has none) or its kind
  // (attention, norm, linear, activation, mlp, residual, or the item's own).
  std::vector<std::string> plugin_points() const;
  // Whether an item, nested ones too, is an attention with kv_cache, or of a kind.
  bool cached() const;
  bool has(std::string_view kind) const;

 private:
  std::vector<BlockItem> items_;
};

// Names that mean an argument of the call, and so are no prefix of parameters.
bool is_call_name(std::string_view name);

}  // namespace atb
