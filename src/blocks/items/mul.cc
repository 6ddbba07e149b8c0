// SPDX-License-Identifier: Apache-2.0
// Mul: the product of what a branch gives; see join_util.h.
#include "blocks/items/join_util.h"

namespace atb {

void register_item_mul(ItemRegistry& registry) { register_join(registry, "mul", "The product"); }

}  // namespace atb
