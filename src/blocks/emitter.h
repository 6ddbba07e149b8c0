// SPDX-License-Identifier: Apache-2.0
// Walks the lists of a block and builds the plain graph.
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "blocks/item.h"

namespace atb {

// Names that the items of a list go by, and what they gave.
struct ListScope {
  ItemPrefix prefix;
  Value* input = nullptr;  // what "input" means
  Value* last_residual = nullptr;
  std::map<std::string, Value*, std::less<>> results{};
};

class Emitter {
 public:
  // `items` are the block's; kInvalidArgument for plugins at points that it has not.
  Emitter(const std::vector<BlockItem>& items, const BlockCall& call, BlockGraph& result);

  // Runs a list of items over a flow.
  void run(const std::vector<BlockItem>& list, Flow& flow, ListScope& scope);
  // The whole block: makes the inputs, runs the items, sets the output.
  void build();

  // What plugins at an item make of its inputs (`before`) or outputs, in the order of their registration.
  std::vector<Value*> plug(const ItemCall& call, std::vector<Value*> values, bool before);
  bool has_plugin(const BlockItem& item, bool before) const;

  Value* parameter(const std::string& name, const std::vector<int64_t>& shape, ParameterInit init);
  Value* input(std::string_view name);  // of the call; null if it gives none. Marks it as read.
  ListScope& scope() { return *scope_; }
  const BlockCall& call() const { return call_; }
  BlockGraph& result() { return result_; }
  Builder& builder() { return b_; }

 private:
  // Operands and attributes of a plugin's node by which its kernel is told of the call.
  void tell(const BlockPlugin& plugin, std::vector<Value*>& operands, Attrs& attrs) const;
  void plug_flow(const ItemCall& call, Flow& flow, bool before);
  void run_item(const std::vector<BlockItem>& list, size_t index, Flow& flow);
  Flow first_flow();
  void require_all_read() const;

  const std::vector<BlockItem>& items_;
  const BlockCall& call_;
  BlockGraph& result_;
  Builder b_;
  ListScope* scope_ = nullptr;
  std::map<std::string, bool, std::less<>> read_;  // inputs of the call
  std::map<std::string, Value*, std::less<>> parameters_;
  std::vector<std::pair<const BlockPlugin*, std::set<const BlockItem*>>> plugins_;  // and where each runs
};

}  // namespace atb
