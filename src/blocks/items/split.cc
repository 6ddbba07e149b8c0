// SPDX-License-Identifier: Apache-2.0
// Split.
#include "blocks/item.h"

namespace atb {
namespace {

std::vector<int64_t> sizes_of(const ItemCall& call, int64_t width) {
  std::vector<int64_t> sizes = call.item.attrs.get<std::vector<int64_t>>("sizes");
  const int64_t sections = call.item.attrs.integer("sections");
  if (sizes.empty() == (sections == 0)) call.fail("takes sections or sizes, one of the two");
  if (sections != 0) {
    if (sections < 1 || width % sections != 0) {
      call.fail(std::to_string(width) + " features cannot be split into " + std::to_string(sections) + " equal parts");
    }
    sizes.assign(static_cast<size_t>(sections), width / sections);
  }
  int64_t left = width;
  for (const int64_t size : sizes) {
    if (size < 1 || size > left) left = -1;
    if (left < 0) break;
    left -= size;
  }
  if (left != 0) call.fail("sizes must be positive and add up to the " + std::to_string(width) + " features of x");
  return sizes;
}

}  // namespace

void register_item_split(ItemRegistry& registry) {
  ItemDef def;
  def.kind = "split";
  def.doc = "The features of x as several values, for the next item.";
  def.attrs = {{"sections", AttrKind::kInt, int64_t{0}, false, "number of equal parts"},
               {"sizes", AttrKind::kInts, std::vector<int64_t>{}, false, "features of each part"}};
  def.apply = on_primary_stream([](const ItemCall& call, Flow& flow) {
    Value* x = flow.single();
    const std::vector<int64_t> sizes = sizes_of(call, call.width(x));
    flow.values.clear();
    int64_t begin = 0;
    for (const int64_t size : sizes) {
      flow.values.push_back(call.b("slice", {x}, {{"axis", int64_t{-1}}, {"bounds", Shape{begin, begin + size}}},
                                   call.scope + "." + std::to_string(flow.values.size())));
      begin += size;
    }
  });
  registry.add(std::move(def));
}

}  // namespace atb
