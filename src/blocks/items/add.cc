// SPDX-License-Identifier: Apache-2.0
// Add: the sum of what a branch gives; see join_util.h.
#include "blocks/items/join_util.h"

namespace atb {

void register_item_add(ItemRegistry& registry) { register_join(registry, "add", "The sum"); }

}  // namespace atb
