// SPDX-License-Identifier: Apache-2.0
// What a CPU kernel is to the plan and the executor: phases of independent units.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/constant.h"
#include "core/kv_layout.h"
#include "core/tensor.h"
#include "ir/graph.h"

namespace atb {

class AlignedBuffer;
class ThreadTeam;

// exact: weights dequantized into f32, KV in f32. fast: activations quantized to int8 per block where the weights are
// quantized, KV in bf16.
enum class Precision { kExact, kFast };

// Packed forms of constants, keyed (constant id, layout name), shared by all plans of a model. Any thread may ask;
// packing runs on the team, so nobody may be running the team meanwhile. `pack` may not ask the store itself.
class PackedStore {
 public:
  explicit PackedStore(ThreadTeam* team = nullptr) : team_(team) {}
  // Memory of `bytes` (64-byte aligned, huge pages where they help, zero-filled), filled by `pack` at the first request
  // for this key. Source pages of `constant` are released afterwards. pack(dst, begin, end) fills units [begin, end) of
  // `units` and may run on several threads; what it throws is rethrown, and the next request packs again.
  // kResourceExhausted when there is no memory, kFailedPrecondition when the constant is absent.
  std::shared_ptr<const std::byte> get(const ConstantRef& constant, const std::string& layout, size_t bytes,
                                       int64_t units,
                                       const std::function<void(std::byte* dst, int64_t begin, int64_t end)>& pack);
  // The whole constant as dense f32 (for norms, biases and other small ones).
  std::shared_ptr<const float> f32(const ConstantRef& constant);
  size_t bytes() const;  // allocated so far

 private:
  struct Entry;
  std::shared_ptr<std::byte> allocate(size_t bytes, const std::string& constant_name);
  ThreadTeam* team_;
  mutable std::mutex mutex_;
  std::map<std::pair<uint64_t, std::string>, std::shared_ptr<Entry>> entries_;
  std::shared_ptr<AlignedBuffer> slab_;  // where small forms are put side by side
  size_t slab_used_ = 0;
  size_t bytes_ = 0;
};

// What a kernel factory gets.
struct KernelRequest {
  const Node& node;
  PackedStore& store;
  Precision precision = Precision::kExact;
  const KvLayout* kv = nullptr;  // for operators with state
};

// One execution of a node in one step. Shapes are actual ones.
struct Call {
  std::span<const TensorView>
      inputs;  // constants: a view of their bytes where plain and in one piece, else data = null
  std::span<const TensorView> outputs;
  std::span<const SequenceStep> sequences;  // the ragged step; empty where the graph has no state
  std::byte* scratch = nullptr;             // Kernel::scratch_bytes, shared by all phases and workers of this node
  std::atomic<bool>* fault = nullptr;       // set by a kernel that could not finish; the executor throws after the walk
  std::span<const int64_t> dims = {};       // actual values of attr_dims() of the node
};

// Immutable after construction; run() may be called from several threads at once on disjoint unit ranges.
// All results must be the same bits however units are split over calls and workers, and whatever other rows are in the
// step.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual int phases() const { return 1; }
  // Number of independent units of a phase, from actual sizes only (never from the thread count).
  virtual int64_t units(const Call& call, int phase) const noexcept = 0;
  // Estimated cost of all units of a phase, in bytes moved or flops / 8, whichever is larger; only balances work.
  virtual double cost(const Call& call, int phase) const noexcept = 0;
  // Scratch for the largest call of a plan (shapes in `call` are upper bounds; data pointers null), 64-byte aligned.
  virtual size_t scratch_bytes(const Call& /*largest*/) const { return 0; }
  // Scratch of one worker, given as `worker_scratch` to run(), 64-byte aligned. Contents do not survive between runs.
  virtual size_t worker_scratch_bytes(const Call& /*largest*/) const { return 0; }
  // True if run() reads operands of any strides; otherwise the last axis must have stride 1 (with_dense_rows sees to
  // it).
  virtual bool takes_any_strides() const { return false; }
  // True if a worker should walk its range as four quarters in turn (far read streams, see linear); the units are then
  // cut into one large part a worker; otherwise into many small ones.
  virtual bool wants_whole_range(const Call& /*call*/, int /*phase*/) const noexcept { return false; }
  virtual void run(const Call& call, int phase, int64_t begin, int64_t end,
                   std::byte* worker_scratch) const noexcept = 0;
  // Name of the code that run() would take for this call, for traces: "linear_q4_1_int8_rows1/AVX3_DL".
  virtual std::string variant(const Call& call) const = 0;
};

}  // namespace atb
