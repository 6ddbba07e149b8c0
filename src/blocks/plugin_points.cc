// SPDX-License-Identifier: Apache-2.0
// Where code from outside may run in a block.
#include "blocks/plugin_points.h"

#include <algorithm>
#include <string_view>

#include "blocks/item.h"
#include "blocks/items/rotary_util.h"
#include "core/error.h"
#include "core/join.h"

namespace atb {
namespace {

// What a point is about: "attention" of "pre_attention"; empty if it is no point.
std::string_view subject_of(std::string_view point) {
  for (const std::string_view when : {"pre_", "post_"}) {
    if (point.starts_with(when)) return point.substr(when.size());
  }
  return {};
}

// The lists of a branch and of a nested block run; that of an attention describes its rotary embedding.
bool runs_lists(const BlockItem& item) { return item.kind == "graph" || item.kind == "branch"; }

}  // namespace

PluginPoints::PluginPoints(const std::vector<BlockItem>& items) { add(items, {}); }

void PluginPoints::add(const std::vector<BlockItem>& items, const ItemPrefix& prefix) {
  for (size_t index = 0; index < items.size(); ++index) {
    const BlockItem& item = items[index];
    const ItemDef& def = ItemRegistry::instance().get(item.kind);
    // One that the attention carries out has no results of its own.
    if (!rotates_in_attention(items, index)) {
      places_.push_back({&item, prefix.scope(item, index), def.group.empty() ? def.kind : def.group});
    }
    if (!runs_lists(item)) continue;
    const std::string path = prefix.path(item, index);
    for (size_t i = 0; i < item.branches.size(); ++i) {
      add(item.branches[i], item.kind == "graph" ? ItemPrefix::nested(path) : prefix.branch(path, i));
    }
  }
}

std::vector<std::string> PluginPoints::names() const {
  std::vector<std::string> names;
  for (const Place& place : places_) {
    for (const std::string& subject : {place.scope, place.group}) {
      for (const char* when : {"pre_", "post_"}) {
        const std::string name = when + subject;
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
      }
    }
  }
  return names;
}

std::set<const BlockItem*> PluginPoints::items_of(const BlockPlugin& plugin) const {
  const std::string_view subject = subject_of(plugin.point);
  const std::string inside = plugin.within.empty() ? "" : plugin.within + ".";
  std::set<const BlockItem*> named, of_kind;
  for (const Place& place : places_) {
    if (!place.scope.starts_with(inside)) continue;
    if (std::string_view(place.scope).substr(inside.size()) == subject) named.insert(place.item);
    if (place.group == subject) of_kind.insert(place.item);
  }
  if (!named.empty()) return named;
  if (!of_kind.empty()) return of_kind;
  throw_error(Code::kInvalidArgument, "[plugin] ", plugin.point, " is no point of this block",
              inside.empty() ? "" : " in ", plugin.within, "; points are ", join(names()));
}

}  // namespace atb
