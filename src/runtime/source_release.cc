// SPDX-License-Identifier: Apache-2.0
#include "runtime/source_release.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/constant.h"

namespace atb {
namespace {

constexpr int64_t kCopiedElements = 16;  // at least those that the text form gives the values of

ConstantRef left_of(const Constant& source) {
  const bool small = source.encoding() == nullptr && source.num_rows() * source.row_elems() <= kCopiedElements;
  if (!small) return Constant::absent(source.name(), source.dtype(), source.encoding(), source.shape());
  std::vector<std::byte> bytes(source.num_bytes());
  copy_dense(source, bytes.data());
  return Constant::from_storage(source.name(), source.dtype(), nullptr, source.shape(),
                                storage_from_bytes(std::move(bytes)), 0);
}

}  // namespace

void release_constant(Graph& graph, Value* constant) {
  if (constant->constant()->absent()) return;
  const std::string name = constant->name();
  Value* left = graph.add_constant(left_of(*constant->constant()));
  graph.rename(constant, name + ".released");
  graph.rename(left, name);
  graph.replace_all_uses(constant, left);
}

void SourceRelease::kernel_made(const Node& node, const PackedRequests& requests) {
  const std::vector<Value*> inputs = node.inputs();  // a copy: releasing edits them
  for (Value* input : inputs) {
    if (input == nullptr || !input->is_constant() || !requests.contains(input->constant()->id())) continue;
    // One that is two operands of a node may be packed for one of them and read in place for the other.
    if (std::count(inputs.begin(), inputs.end(), input) > 1) continue;
    if (++packed_uses_[input] == input->uses().size() && !graph_.is_output(input)) release_constant(graph_, input);
  }
}

}  // namespace atb
