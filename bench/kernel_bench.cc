// SPDX-License-Identifier: Apache-2.0
#include "kernel_bench.h"

#include <algorithm>
#include <cstring>

#include "core/memory.h"
#include "devices/device.h"
#include "ops/kv_fixture.h"

namespace atb {
namespace {

// Weights of all copies together: beyond the caches of today's servers, and what the read limit is measured on.
constexpr size_t kBeyondCaches = size_t{256} << 20;
constexpr size_t kMostCopies = 512;

size_t bytes_of(const Value* value) {
  const int64_t count = num_elements(value->shape()).constant();
  return static_cast<size_t>(count) * dtype_size(value->type().dtype);
}

void fill(const RefTensor<float>& tensor, std::byte* to) {
  if (tensor.dtype == DType::kF32) std::memcpy(to, tensor.f.data(), tensor.f.size() * sizeof(float));
  for (size_t i = 0; i < tensor.i.size(); ++i) {
    if (tensor.dtype == DType::kI64) std::memcpy(to + i * 8, &tensor.i[i], 8);
    const auto narrow = static_cast<int32_t>(tensor.i[i]);
    if (tensor.dtype == DType::kI32) std::memcpy(to + i * 4, &narrow, 4);
  }
}

}  // namespace

// The memory of graph inputs and outputs; states have none.
struct KernelBench::Copy {
  explicit Copy(const testing::OpCase& made) : test(made) {
    auto graph = std::make_unique<Graph>("bench");
    testing::build_op_graph(*graph, test);
    const KvLayout* kv = test.cache != nullptr ? &test.cache->layout() : nullptr;
    program = std::make_unique<Program>(std::move(graph), find_device("cpu"), store,
                                        ProgramOptions{.precision = test.precision, .kv = kv});
    plan = std::make_unique<Plan>(*program, Bindings{});
    std::vector<std::byte*> inputs, outputs;
    for (const Value* input : program->graph().inputs()) inputs.push_back(take(bytes_of(input)));
    for (const Value* output : program->graph().outputs()) outputs.push_back(take(bytes_of(output)));
    size_t at = 0;
    for (const testing::Operand& operand : test.inputs) {
      if (operand.tensor) fill(*operand.tensor, inputs[at]);
      if (operand.tensor || operand.state) ++at;
    }
    arena = AlignedBuffer(plan->arena_bytes(), "bench");
    frame = plan->resolve({}, inputs, outputs, arena.data());
    if (test.cache != nullptr) steps = test.cache->steps();
  }

  std::byte* take(size_t bytes) {
    if (bytes == 0) return nullptr;
    return memory.emplace_back(bytes, "bench").data();
  }
  const Node& node() const { return *program->items()[0].node; }

  testing::OpCase test;
  PackedStore store;
  std::unique_ptr<Program> program;
  std::unique_ptr<Plan> plan;
  std::vector<AlignedBuffer> memory;
  AlignedBuffer arena;
  std::vector<SequenceStep> steps;
  Frame frame;
};

KernelBench::KernelBench(const testing::BenchCall& call, ThreadTeam& team) : executor_(team) {
  copies_.push_back(std::make_unique<Copy>(call.make()));
  const size_t packed = copies_[0]->store.bytes();
  if (!call.reads_weights || packed == 0) return;
  const size_t wanted = std::min(kMostCopies, kBeyondCaches / packed + 1);
  while (copies_.size() < wanted) copies_.push_back(std::make_unique<Copy>(call.make()));
}

KernelBench::~KernelBench() = default;

void KernelBench::run() {
  Copy& copy = *copies_[next_++ % copies_.size()];
  executor_.run(*copy.program, copy.frame, copy.steps);
}

// The operators that read the cache count the step's own tokens alone, a run reads the whole past: bytes and flops of
// cached attention are worked out here.
double KernelBench::bytes() const {
  const Copy& copy = *copies_[0];
  if (copy.test.op != "flash_attention_kv") return static_cast<double>(node_bytes(copy.node()).eval({}));
  return 2.0 * static_cast<double>(bytes_of(copy.node().output())) + copy.test.cache->read_bytes();
}

double KernelBench::flops() const {
  const Copy& copy = *copies_[0];
  if (copy.test.op != "flash_attention_kv") return static_cast<double>(node_flops(copy.node()).eval({}));
  const KvLayout& kv = copy.test.cache->layout();
  const double keys = copy.test.cache->read_bytes() / static_cast<double>(2 * kv.kv_heads * kv.head_dim) /
                      static_cast<double>(kv.element());
  return 4.0 * static_cast<double>(num_elements(copy.node().output()->shape()).constant()) * keys;
}

std::string KernelBench::variant() const {
  const Copy& copy = *copies_[0];
  Call call = copy.frame.items[0].call;
  call.sequences = copy.steps;
  return copy.program->items()[0].kernel->variant(call);
}

}  // namespace atb
