// SPDX-License-Identifier: Apache-2.0
#include "fuzz/random_graphs/generate.h"

#include <algorithm>
#include <set>

#include "fuzz/random_graphs/operands.h"
#include "fuzz/random_graphs/operators.h"

namespace atb::random_graphs {
namespace {

constexpr double kPlants = 0.3;  // of the steps
constexpr double kWhole = 0.5;   // of the plants

struct Extents {
  Dim batch, tokens;
  Bindings bindings, other_bindings;
};

// Batch and tokens are symbols in most graphs.
Extents draw_extents(Prng& random) {
  const std::vector<int64_t> batches = {1, 2, 3};
  const std::vector<int64_t> lengths = {1, 2, 3, 5, 8};
  Extents extents;
  extents.bindings = {{"B", random.pick(batches)}, {"T", random.pick(lengths)}};
  extents.other_bindings = {{"B", random.pick(batches)}, {"T", random.pick(lengths)}};
  const bool fixed_batch = random.chance(0.25);
  const bool fixed_tokens = random.chance(0.25);
  extents.batch = fixed_batch ? Dim(extents.bindings["B"]) : Dim::symbol("B", 1, 64);
  extents.tokens = fixed_tokens ? Dim(extents.bindings["T"]) : Dim::symbol("T", 1, 4096);
  return extents;
}

// Each plant is a layer of its own: reports then say which one was fused.
void add_plant(Sketch& sketch, const PlantKind& kind, const std::string& flaw, std::vector<Plant>& plants) {
  const int layer = static_cast<int>(plants.size());
  sketch.set_layer(layer);
  plants.push_back(kind.plant(sketch, flaw));
  plants.back().layer = layer;
  sketch.set_layer(-1);
}

void add_some_plant(Sketch& sketch, std::vector<Plant>& plants) {
  const PlantKind& kind = sketch.random().pick(plant_kinds());
  add_plant(sketch, kind, sketch.random().chance(kWhole) ? "" : sketch.random().pick(kind.flaws), plants);
}

bool returns(const std::vector<Value*>& outputs, const Value* value) {
  return std::find(outputs.begin(), outputs.end(), value) != outputs.end();
}

// What the outputs need.
std::set<const Value*> live_values(const std::vector<Value*>& outputs) {
  std::set<const Value*> live;
  std::vector<const Value*> next(outputs.begin(), outputs.end());
  while (!next.empty()) {
    const Value* value = next.back();
    next.pop_back();
    if (value == nullptr || !live.insert(value).second || value->producer() == nullptr) continue;
    next.insert(next.end(), value->producer()->inputs().begin(), value->producer()->inputs().end());
  }
  return live;
}

bool holds(const Plant& plant, const std::vector<Value*>& outputs) {
  const std::set<const Value*> live = live_values(outputs);
  return std::all_of(plant.live.begin(), plant.live.end(), [&](const Value* v) { return live.contains(v); }) &&
         std::all_of(plant.returned.begin(), plant.returned.end(), [&](const Value* v) { return returns(outputs, v); });
}

// Late values, views together with what they show, now and then an input or the same value twice; and what plants need.
std::vector<Value*> choose_outputs(Sketch& sketch, const std::vector<Plant>& plants) {
  const std::vector<Value*>& offered = sketch.offered();
  std::vector<Value*> outputs;
  const int64_t wanted = sketch.random().between(1, 4);
  for (int64_t i = 0; i < wanted && !offered.empty(); ++i) {
    const auto count = static_cast<int64_t>(offered.size());
    Value* value = offered[static_cast<size_t>(count - 1 - sketch.random().below((count + 1) / 2))];
    if (!returns(outputs, value) || sketch.random().chance(0.1)) outputs.push_back(value);
    const Node* node = value->producer();
    const bool view = node != nullptr && node->op().is_view() && sketch.sound(node->input(0));
    const bool own = view && (node->layer() < 0 || returns(offered, node->input(0)));
    if (own && sketch.random().chance(0.5)) outputs.push_back(node->input(0));
  }
  for (const Plant& plant : plants) {
    if (holds(plant, outputs) || sketch.random().chance(0.1)) continue;
    for (Value* value : plant.live) {
      if (sketch.sound(value) && !live_values(outputs).contains(value)) outputs.push_back(value);
    }
    for (Value* value : plant.returned) {
      if (sketch.sound(value) && !returns(outputs, value)) outputs.push_back(value);
    }
  }
  if (outputs.empty()) outputs.push_back(any_float(sketch));
  return outputs;
}

RandomGraph finish(Sketch& sketch, const std::vector<Value*>& outputs, const std::vector<Plant>& plants,
                   const Extents& extents, uint64_t seed) {
  std::vector<std::string> names;
  for (size_t i = 0; i < outputs.size(); ++i) names.push_back("out" + std::to_string(i));
  sketch.graph().set_outputs(outputs, names);
  RandomGraph result;
  result.seed = seed;
  result.rounds = sketch.rounds();
  std::copy_if(plants.begin(), plants.end(), std::back_inserter(result.plants),
               [&](const Plant& plant) { return holds(plant, outputs); });
  result.inputs = draw_inputs(sketch.graph(), extents.bindings, seed);
  result.other_inputs = draw_inputs(sketch.graph(), extents.other_bindings, seed + 1);
  result.graph = sketch.take_graph();
  return result;
}

// The first input gives every symbol its value.
void add_first_input(Sketch& sketch) {
  const Dim width(sketch.random().between(2, 17));
  sketch.offer(sketch.input(DType::kF32, {sketch.batch(), sketch.tokens(), width}));
}

}  // namespace

RandomGraph generate(uint64_t seed) {
  Prng random(seed ^ 0x5DEECE66Dull);
  const Extents extents = draw_extents(random);
  Sketch sketch(seed, extents.batch, extents.tokens, extents.bindings);
  add_first_input(sketch);
  std::vector<Plant> plants;
  const int64_t steps = random.between(4, 14);
  for (int64_t i = 0; i < steps; ++i) {
    if (random.chance(kPlants)) {
      add_some_plant(sketch, plants);
    } else {
      add_random_operator(sketch);
    }
  }
  return finish(sketch, choose_outputs(sketch, plants), plants, extents, seed);
}

RandomGraph generate_plant(uint64_t seed, const PlantKind& kind, const std::string& flaw) {
  Prng random(seed ^ 0xBADC0FFEEull);
  const Extents extents = draw_extents(random);
  Sketch sketch(seed, extents.batch, extents.tokens, extents.bindings);
  add_first_input(sketch);
  std::vector<Plant> plants;
  add_plant(sketch, kind, flaw, plants);
  std::vector<Value*> outputs = plants[0].live;
  outputs.insert(outputs.end(), plants[0].returned.begin(), plants[0].returned.end());
  return finish(sketch, outputs, plants, extents, seed);
}

}  // namespace atb::random_graphs
