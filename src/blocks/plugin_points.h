// SPDX-License-Identifier: Apache-2.0
// Where code from outside may run in a block: before and after an item, which goes by its name or by its kind.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "blocks/block.h"

namespace atb {

struct ItemPrefix;

class PluginPoints {
 public:
  // `items` must outlive this.
  explicit PluginPoints(const std::vector<BlockItem>& items);

  // "pre_attn", "post_attn", "pre_attention", ...: of every item in order, each once.
  std::vector<std::string> names() const;
  // The items at which a plugin runs: the one of that name, else all of that kind. kInvalidArgument, listing what there
  // is, for a point that is none.
  std::set<const BlockItem*> items_of(const BlockPlugin& plugin) const;

 private:
  struct Place {
    const BlockItem* item;
    std::string scope;  // its name, after those of the blocks that it is in
    std::string group;  // its kind, as users know it
  };

  void add(const std::vector<BlockItem>& items, const ItemPrefix& prefix);

  std::vector<Place> places_;
};

}  // namespace atb
