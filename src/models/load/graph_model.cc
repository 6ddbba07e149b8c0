// SPDX-License-Identifier: Apache-2.0
// A decoder graph that another front door has made, as a loaded model.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "ir/builder.h"
#include "models/model.h"

namespace atb {
namespace {

// Matrices in a block format run in int8 unless told otherwise, as those of files do.
bool is_quantized(const Value& constant) { return constant.type().encoding != nullptr; }

int64_t vocabulary(const Graph& graph) {
  const std::vector<Value*>& outputs = graph.outputs();
  const bool ranked = !outputs.empty() && (outputs[0]->rank() == 3 || outputs[0]->rank() == 2);
  require(ranked && outputs[0]->dim(-1).is_constant(), Code::kInvalidArgument, "[model] graph ", graph.name(),
          ": its first output is ", outputs.empty() ? std::string("missing") : outputs[0]->type().str(),
          "; needs logits [B, T, V], or [B, V] of the last token, of a known V");
  return outputs[0]->dim(-1).constant();
}

// Tokens are chosen from f32, whatever the graph computes its logits in.
void widen_logits(Graph& graph) {
  std::vector<Value*> outputs = graph.outputs();
  if (outputs[0]->type().dtype == DType::kF32) return;
  Builder builder(graph);
  outputs[0] = builder("cast", {outputs[0]}, {{"dtype", std::string("f32")}}, "logits");
  graph.set_outputs(std::move(outputs), graph.output_names());
}

}  // namespace

LoadedModel model_of_graph(std::unique_ptr<Graph> graph, int64_t context_length) {
  require(context_length > 0, Code::kInvalidArgument, "[model] graph ", graph->name(), ": context length is ",
          context_length, "; needs the longest sequence that the model was made for");
  LoadedModel model;
  model.format = "graph";
  model.config.family = graph->name();
  model.config.vocab_size = vocabulary(*graph);
  model.config.context_length = context_length;
  widen_logits(*graph);
  for (const Node* node : graph->nodes()) {
    model.config.layers = std::max<int64_t>(model.config.layers, node->layer() + 1);
  }
  for (const Value* constant : graph->constants()) {
    model.weight_bytes += constant->constant()->num_bytes();
    if (is_quantized(*constant)) model.default_precision = Precision::kFast;
  }
  model.graph = std::move(graph);
  return model;
}

}  // namespace atb
