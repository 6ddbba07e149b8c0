// SPDX-License-Identifier: Apache-2.0
// A graph under construction whose numbers are known: each node is computed as it is made, in f64 and in f32, so that
// only values near unit scale that f32 arithmetic keeps accurate are read further and returned.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/random_graphs/prng.h"
#include "ir/builder.h"
#include "ir/graph.h"
#include "ir/interpreter.h"

namespace atb::random_graphs {

using Inputs = std::map<std::string, RefTensor<double>>;

// Integer inputs lie in [0, kIds): tables that they index have at least so many rows.
constexpr int64_t kIds = 11;

// The size against which errors are measured: the standard deviation, or where all elements are (nearly) equal, the
// root of their mean square.
double spread(const std::vector<double>& values);

// Numbers for every input of a graph: floats of mean 0 and variance 1 (representable in the input's dtype), integers
// below kIds, booleans.
Inputs draw_inputs(const Graph& graph, const Bindings& bindings, uint64_t seed);

// What is known of a value.
struct Known {
  RefTensor<double> wide;   // computed in f64
  RefTensor<float> narrow;  // computed in f32
  bool sound = false;       // finite, near unit scale, accurate in f32, no comparison near a tie
};

class Sketch {
 public:
  // Streams of tokens have shape [batch, tokens, width]; `bindings` give the extents of this run.
  Sketch(uint64_t seed, Dim batch, Dim tokens, Bindings bindings);

  Prng& random() { return random_; }
  Graph& graph() { return *graph_; }
  const Dim& batch() const { return batch_; }
  const Dim& tokens() const { return tokens_; }
  int64_t extent(const Dim& dim) const { return dim.eval(bindings_); }
  std::unique_ptr<Graph> take_graph() { return std::move(graph_); }
  // Nodes made from now on belong to this layer.
  void set_layer(int layer) { builder_.set_layer(layer); }

  Value* input(DType dtype, Shape shape);
  // Multiples of 1/256 (sums and products of two are exact in f32) of mean `offset` and standard deviation `scale`.
  Value* constant(std::vector<int64_t> shape, double scale = 1, double offset = 0, DType dtype = DType::kF32);
  // The given numbers, each representable in `dtype`.
  Value* numbers(std::vector<int64_t> shape, const std::vector<double>& values, DType dtype = DType::kF32);
  Value* scalar(double value) { return numbers({}, {value}); }
  Node* node(std::string_view op, std::vector<Value*> inputs, Attrs attrs = {});
  Value* value(std::string_view op, std::vector<Value*> inputs, Attrs attrs = {});
  Value* reshape(Value* x, Shape shape) { return value("reshape", {x}, {{"shape", std::move(shape)}}); }
  Value* transpose(Value* x, std::vector<int64_t> perm) { return value("transpose", {x}, {{"perm", std::move(perm)}}); }

  const Known& known(const Value* value) const { return known_.at(value); }
  bool sound(const Value* value) const { return known(value).sound; }

  // Numbers that some pass rounds to f32 were used: optimized graphs need not be as near as f64 is.
  void expect_rounding() { rounds_ = true; }
  bool rounds() const { return rounds_; }

  // Random nodes may read an offered value, and the graph may return it. Unsound ones are not taken. Operators named in
  // `but_not` do not read it: a second norm of a planted sum could take the place of the planted one.
  void offer(Value* value, std::set<std::string, std::less<>> but_not = {});
  const std::vector<Value*>& offered() const { return offered_; }
  bool may_read(std::string_view op, const Value* value) const;

 private:
  template <class T>
  std::vector<RefTensor<T>> compute(std::string_view op, const std::vector<Value*>& inputs, const Attrs& attrs) const;
  template <class T>
  const RefTensor<T>& numbers_of(const Value* value) const;
  bool away_from_ties(const Node& node) const;
  void learn(const Value* value, RefTensor<double> wide, RefTensor<float> narrow, bool sound);
  std::string fresh(const char* stem) { return stem + std::to_string(count_++); }

  Prng random_;
  uint64_t input_seed_;
  Dim batch_;
  Dim tokens_;
  Bindings bindings_;
  std::unique_ptr<Graph> graph_;
  Builder builder_;
  std::map<const Value*, Known> known_;
  std::vector<Value*> offered_;
  std::map<const Value*, std::set<std::string, std::less<>>> but_not_;
  int count_ = 0;
  bool rounds_ = false;
};

}  // namespace atb::random_graphs
