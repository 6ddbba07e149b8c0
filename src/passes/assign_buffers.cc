// SPDX-License-Identifier: Apache-2.0
#include "passes/assign_buffers.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "ir/op.h"
#include "passes/plan_memory.h"

namespace atb {
namespace {

int64_t dense_bytes(const Value& value, const Bindings& bindings) {
  return num_elements(value.shape()).eval(bindings) * static_cast<int64_t>(dtype_size(value.type().dtype));
}

// The executed node's value, graph input or constant whose storage `value` aliases.
const Value* root_of(const Value* value) {
  while (value->producer() != nullptr && aliases_input(*value->producer())) value = value->producer()->input(0);
  return value;
}

class Assigner {
 public:
  Assigner(const Graph& graph, const Schedule& schedule, const Bindings& largest)
      : graph_(graph), schedule_(schedule), largest_(largest) {
    for (size_t stage = 0; stage < schedule.stages.size(); ++stage) {
      for (const Node* node : schedule.stages[stage]) stage_of_[node] = static_cast<int>(stage);
    }
  }

  BufferPlan run(bool share) {
    find_lives();
    join_in_place(share);
    return place();
  }

 private:
  // Stages [first, last] in which a buffer is in use.
  struct Life {
    const Value* value;
    int first;
    int last;
  };

  template <class Visit>
  void for_each_node(Visit visit) const {
    for (size_t stage = 0; stage < schedule_.stages.size(); ++stage) {
      for (const Node* node : schedule_.stages[stage]) visit(*node, static_cast<int>(stage));
    }
  }

  void find_lives() {
    for_each_node([&](const Node& node, int stage) {
      for (const Value* output : node.outputs()) {
        if (output->type().dtype == DType::kState || graph_.is_output(output)) continue;
        life_of_[output] = lives_.size();
        lives_.push_back({output, stage, stage});
      }
    });
    const auto read = [&](const Value* value, int stage) {
      const auto it = life_of_.find(root_of(value));
      if (it != life_of_.end()) lives_[it->second].last = std::max(lives_[it->second].last, stage);
    };
    for_each_node([&](const Node& node, int stage) {
      for (const Value* input : node.inputs()) {
        if (input != nullptr) read(input, stage);
      }
    });
    for (const Value* output : graph_.outputs()) read(output, static_cast<int>(schedule_.stages.size()));
  }

  // True if `node` may write `output` over `input`: same bytes, seen by no view, nobody else reads it at this stage.
  bool may_overwrite(const Node& node, const Value* input, const Value* output) const {
    if (input->type().dtype != output->type().dtype) return false;
    if (dense_bytes(*input, largest_) != dense_bytes(*output, largest_)) return false;
    int readers = 0;
    for (const Use& use : input->uses()) {
      if (aliases_input(*use.node)) return false;
      readers += stage_of_.at(use.node) == stage_of_.at(&node) ? 1 : 0;
    }
    return readers == 1;
  }

  // Joins the life of an operand that ends at a node with that of the output which may be written over it.
  void join_in_place(bool share) {
    owner_.resize(lives_.size());
    std::iota(owner_.begin(), owner_.end(), size_t{0});
    if (!share) return live_to_the_end();
    for_each_node([&](const Node& node, int stage) {
      const std::vector<OutputSpec>& specs = node.op().outputs;
      for (size_t o = 0; o < node.outputs().size() && o < specs.size(); ++o) {
        if (specs[o].in_place_of < 0) continue;
        const Value* input = node.input(static_cast<size_t>(specs[o].in_place_of));
        const auto from = life_of_.find(input);
        const auto to = life_of_.find(node.output(o));
        if (from == life_of_.end() || to == life_of_.end() || !may_overwrite(node, input, node.output(o))) continue;
        Life& source = lives_[owner_[from->second]];
        if (source.last != stage) continue;
        source.last = lives_[to->second].last;
        owner_[to->second] = owner_[from->second];
      }
    });
  }

  void live_to_the_end() {
    for (Life& life : lives_) life = {life.value, 0, static_cast<int>(schedule_.stages.size())};
  }

  BufferPlan place() const {
    std::vector<PlannedBuffer> buffers;
    std::vector<size_t> buffer_of(lives_.size());
    for (size_t i = 0; i < lives_.size(); ++i) {
      if (owner_[i] != i) continue;
      buffer_of[i] = buffers.size();
      buffers.push_back(
          {static_cast<int64_t>(i), lives_[i].first, lives_[i].last + 1, dense_bytes(*lives_[i].value, largest_)});
    }
    const MemoryPlan plan = plan_memory(buffers);
    BufferPlan result;
    for (size_t i = 0; i < lives_.size(); ++i) result.offsets[lives_[i].value] = plan.offsets[buffer_of[owner_[i]]];
    result.num_buffers = static_cast<int64_t>(buffers.size());
    result.arena_bytes = plan.total;
    result.lower_bound_bytes = plan.lower_bound;
    return result;
  }

  const Graph& graph_;
  const Schedule& schedule_;
  const Bindings& largest_;
  std::unordered_map<const Node*, int> stage_of_;
  std::vector<Life> lives_;
  std::unordered_map<const Value*, size_t> life_of_;
  std::vector<size_t> owner_;  // life whose buffer each life uses
};

}  // namespace

BufferPlan assign_buffers(const Graph& graph, const Schedule& schedule, const Bindings& largest, bool share) {
  return Assigner(graph, schedule, largest).run(share);
}

Bindings parse_bindings(std::string_view text) {
  Bindings bindings;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const size_t equals = item.find('=');
    const std::string_view digits = equals == std::string_view::npos ? "" : item.substr(equals + 1);
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool good = equals > 0 && error == std::errc() && end == digits.data() + digits.size() && value >= 0;
    require(good, Code::kInvalidArgument, "[plan-memory] '", item, "' is not SYMBOL=SIZE, as in T=64,L=8");
    bindings.insert_or_assign(std::string(item.substr(0, equals)), value);
  }
  return bindings;
}

}  // namespace atb
