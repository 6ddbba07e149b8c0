// SPDX-License-Identifier: Apache-2.0
// Rotary embedding of heads.
#include "blocks/items/rotary_util.h"

#include <cmath>

#include "blocks/rotary.h"

namespace atb {
namespace {

double positive(const ItemCall& call, const Attrs& attrs, const char* name) {
  const double value = attrs.real(name);
  if (!std::isfinite(value) || value <= 0) {
    call.fail("rotary " + std::string(name) + " " + std::to_string(value) + " must be finite and above 0");
  }
  return value;
}

RopeConfig config_of(const ItemCall& call, const Attrs& attrs, int64_t head_dim) {
  RopeConfig config;
  config.type = attrs.text("type");
  config.theta = positive(call, attrs, "theta");
  config.rotary_dim = attrs.integer("dim") == 0 ? head_dim : attrs.integer("dim");
  if (config.rotary_dim < 2 || config.rotary_dim % 2 != 0 || config.rotary_dim > head_dim) {
    call.fail("rotary dim " + std::to_string(config.rotary_dim) + " must be even, from 2 to the head size " +
              std::to_string(head_dim));
  }
  if (config.type == "default") return config;
  if (config.type != "llama3") call.fail("rotary type \"" + config.type + "\" is none of default, llama3");
  config.factor = positive(call, attrs, "factor");
  config.low_freq_factor = positive(call, attrs, "low_freq_factor");
  config.high_freq_factor = positive(call, attrs, "high_freq_factor");
  config.original_context = attrs.integer("original_context");
  if (config.original_context < 1 || config.high_freq_factor <= config.low_freq_factor) {
    call.fail("rotary type llama3 needs original_context, and a high_freq_factor above low_freq_factor");
  }
  return config;
}

}  // namespace

std::vector<AttrSpec> rotary_attrs() {
  return {{"theta", AttrKind::kReal, 10000.0, false, "base of the frequencies"},
          {"dim", AttrKind::kInt, int64_t{0}, false, "leading features of a head that rotate; 0: all"},
          {"interleaved", AttrKind::kBool, false, false, "pairs are neighbours (2i, 2i + 1), not halves"},
          {"type", AttrKind::kText, std::string("default"), false, "default or llama3"},
          {"factor", AttrKind::kReal, 1.0, false, "llama3: divisor of long waves"},
          {"low_freq_factor", AttrKind::kReal, 1.0, false, "llama3"},
          {"high_freq_factor", AttrKind::kReal, 4.0, false, "llama3"},
          {"original_context", AttrKind::kInt, int64_t{0}, false, "llama3: tokens it was first trained for"}};
}

bool rotates_in_attention(const std::vector<BlockItem>& list, size_t index) {
  if (list[index].kind != "rotary_embedding") return false;
  size_t next = index + 1;
  while (next < list.size() && list[next].kind == "dropout") ++next;
  return next < list.size() && list[next].kind == "flash_attention";
}

std::pair<Value*, Value*> rotary_tables(const ItemCall& call, const Attrs& rotary, const Value* x) {
  const std::vector<float> frequencies = rope_frequencies(config_of(call, rotary, x->dim(-1).constant()));
  Value* inv_freq = call.b.constant(
      Constant::from_f32(call.scope + ".inv_freq", {static_cast<int64_t>(frequencies.size())}, frequencies));
  const Node* table = call.b.node("rotary_table", {call.positions(x), inv_freq}, {}, call.scope + ".cos");
  return {table->output(0), table->output(1)};
}

Value* rotate(const ItemCall& call, const Attrs& rotary, Value* x, std::pair<Value*, Value*> tables) {
  return call.b("rotary", {x, tables.first, tables.second}, {{"interleaved", rotary.flag("interleaved")}},
                call.scope + ".rotated");
}

}  // namespace atb
