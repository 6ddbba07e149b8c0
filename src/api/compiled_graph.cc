// SPDX-License-Identifier: Apache-2.0
#include "api/compiled_graph.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "api/input_symbols.h"
#include "api/kv_slots.h"
#include "api/result_buffers.h"
#include "api/run_options.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/thread_team.h"
#include "core/trace.h"
#include "ir/bound_shapes.h"
#include "ir/op.h"
#include "passes/pattern_log.h"
#include "passes/pipeline.h"
#include "runtime/executor.h"
#include "runtime/plan.h"
#include "runtime/program.h"

namespace atb {
namespace {

constexpr size_t kMaxPlans = 16;  // of distinct shapes; the one not used for longest goes

bool misaligned(const TensorView& view) {
  return view.data != nullptr && reinterpret_cast<uintptr_t>(view.data) % dtype_size(view.dtype) != 0;
}

// Kernels compute in f32: f64 may be moved and viewed, but not pretended to be computed.
void check_computable(const Graph& graph) {
  for (const Node* node : graph.nodes()) {
    if (node->op().is_view()) continue;
    for (const Value* output : node->outputs()) {
      require(output->type().dtype != DType::kF64, Code::kUnsupported, "[", node->op_name(), "] ", node->name(),
              ": gives ", output->type().str(), ", but this build computes in f32; convert the inputs to f32");
    }
  }
}

void check_runnable(const Graph& graph) {
  const auto has_state = [](const Value* value) { return value->type().dtype == DType::kState; };
  bool state = std::any_of(graph.inputs().begin(), graph.inputs().end(), has_state);
  for (const Node* node : graph.nodes()) state = state || node->op().has_state;
  require(!state, Code::kUnsupported, "[graph] ", graph.name(),
          " has state (a KV cache): graphs with state run as a LanguageModel");
  for (const Value* constant : graph.constants()) {
    require(!constant->constant()->absent(), Code::kFailedPrecondition, "[graph] ", graph.name(), ": constant ",
            constant->name(), " : ", constant->type().str(),
            " has no data: none was given, or it was released once it was packed; make the graph again with it");
  }
  for (const Value* input : graph.inputs()) {
    require(input->rank() <= kMaxRank, Code::kUnsupported, "[graph] input ", input->name(), ": ", input->rank(),
            " axes, at most ", kMaxRank, " can run");
  }
  require_bindable(graph);
  check_computable(graph);
}

Precision default_precision(const Graph& graph) {
  for (const Value* constant : graph.constants()) {
    if (constant->constant()->encoding() != nullptr) return Precision::kFast;
  }
  return Precision::kExact;
}

// The cache that all cached attentions of a graph share: a slot each, with blocks of its own.
std::optional<KvLayout> cache_layout(const std::vector<CachedSlot>& cached, DType dtype) {
  if (cached.empty()) return std::nullopt;
  const CachedSlot& first = cached.front();
  for (const CachedSlot& slot : cached) {
    require(slot.kv_heads == first.kv_heads && slot.head_dim == first.head_dim, Code::kUnsupported, "[kv] ", slot.scope,
            ": ", slot.kv_heads, " kv heads of ", slot.head_dim, ", but ", first.scope, " has ", first.kv_heads, " of ",
            first.head_dim, "; attentions of one graph share a cache");
    require(slot.batch == first.batch && slot.tokens == first.tokens, Code::kUnsupported, "[kv] ", slot.scope, ": ",
            slot.batch.str(), " sequences of ", slot.tokens.str(), " tokens, but ", first.scope, " has ",
            first.batch.str(), " of ", first.tokens.str(), "; attentions of one graph share a cache");
  }
  return KvLayout{.dtype = dtype, .slots = 1, .kv_heads = first.kv_heads, .head_dim = first.head_dim};
}

// A call's inputs, with a place for the state, which has no data.
std::vector<TensorView> with_state(const Graph& graph, std::span<const TensorView> inputs) {
  std::vector<TensorView> views(inputs.begin(), inputs.end());
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    if (graph.inputs()[i]->type().dtype != DType::kState) continue;
    views.insert(views.begin() + static_cast<std::ptrdiff_t>(std::min(i, views.size())),
                 TensorView::dense(nullptr, DType::kState, {}));
  }
  return views;
}

// A call that has ended, as a step of the trace.
void record_call(Trace* trace, int64_t begin_ns, const std::vector<Tensor>& outputs) {
  if (trace == nullptr) return;
  const uint32_t label = trace->intern({.name = "call", .category = "step"});
  trace->record(label, begin_ns, Trace::now_ns(), 0, outputs.empty() ? -1 : outputs[0].view().rows());
}

// Marks the thread whose call is running.
class Running {
 public:
  explicit Running(std::atomic<std::thread::id>& caller) : caller_(caller) { caller_ = std::this_thread::get_id(); }
  ~Running() { caller_ = std::thread::id(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  std::atomic<std::thread::id>& caller_;
};

size_t byte_count(DType dtype, std::span<const int64_t> shape) {
  size_t bytes = dtype_size(dtype);
  for (const int64_t extent : shape) {
    const bool fits = extent >= 0 && !__builtin_mul_overflow(bytes, static_cast<size_t>(extent), &bytes);
    require(fits, Code::kInvalidArgument, "[tensor] extent ", extent, ": the number of bytes exceeds 2^64");
  }
  return bytes;
}

}  // namespace

Tensor Tensor::allocate(DType dtype, std::vector<int64_t> shape) {
  auto buffer = std::make_shared<AlignedBuffer>(std::max<size_t>(byte_count(dtype, shape), 1), "tensor");
  return {{buffer, buffer->data()}, dtype, std::move(shape)};
}

void bind_constant(Graph& graph, const ConstantRef& constant) {
  const std::vector<Value*> constants = graph.constants();
  const auto it = std::find_if(constants.begin(), constants.end(),
                               [&](const Value* value) { return value->name() == constant->name(); });
  require(it != constants.end(), Code::kNotFound, "[graph] ", graph.name(), " uses no constant named ",
          constant->name());
  Value* old = *it;
  const Type type{constant->dtype(), Shape(constant->shape().begin(), constant->shape().end()), constant->encoding()};
  require(type == old->type(), Code::kInvalidArgument, "[graph] constant ", constant->name(), ": is ", type.str(),
          ", expected ", old->type().str());
  graph.rename(old, constant->name() + ".unbound");
  graph.replace_all_uses(old, graph.add_constant(constant));
}

struct CompiledGraph::Impl {
  Impl(std::unique_ptr<Graph> graph, const CompileOptions& options)
      : precision(precision_named(options.precision, default_precision(*graph), "graph")),
        level(opt_level(options.opt_level, "graph")),
        report((check_runnable(*graph),
                joined(options.earlier,
                       optimize(*graph, {.cache = false, .cached_scopes = options.cached, .level = level})))),
        cached(cached_slots(*graph)),
        kv_layout(cache_layout(cached, options.kv_dtype)),
        team(options.threads),
        store(&team),
        program(std::move(graph), running_device(options.device, "a graph"), store,
                {.precision = precision,
                 .kv = kv_layout ? &*kv_layout : nullptr,
                 .strided_inputs = true,
                 .host_kernels = options.host_kernels,
                 .level = level}),
        executor(team) {}

  // The plan of these sizes, moved to the front.
  const Plan& plan_for(const Bindings& bindings) {
    const auto it =
        std::find_if(plans.begin(), plans.end(), [&](const auto& plan) { return plan->largest() == bindings; });
    if (it != plans.end()) {
      plans.splice(plans.begin(), plans, it);
    } else {
      check_bound_shapes(program.graph(), bindings);
      plans.push_front(std::make_unique<Plan>(program, bindings));
      if (plans.size() > kMaxPlans) plans.pop_back();
    }
    return *plans.front();
  }

  // Views that kernels can read; `copies` holds what had to be copied.
  static std::vector<TensorView> readable(const Plan& plan, std::span<const TensorView> inputs,
                                          std::vector<Tensor>& copies) {
    std::vector<TensorView> views(inputs.begin(), inputs.end());
    for (size_t i = 0; i < views.size(); ++i) {
      if (!misaligned(views[i]) && (views[i].contiguous() || !plan.needs_contiguous(i))) continue;
      const TensorView& view = views[i];
      Tensor& copy =
          copies.emplace_back(Tensor::allocate(view.dtype, {view.shape.begin(), view.shape.begin() + view.rank}));
      copy_dense(view, copy.data.get());
      views[i] = copy.view();
    }
    return views;
  }

  // Before the lock: a fork may have copied it locked.
  void check_process() const {
    require(process == getpid(), Code::kFailedPrecondition, "[graph] ", program.graph().name(),
            ": a graph cannot be used in a forked child process; compile it there");
  }

  // One call at a time; a host kernel's call back into its own graph would wait for itself.
  std::unique_lock<std::mutex> lock() {
    require(caller.load() != std::this_thread::get_id(), Code::kFailedPrecondition, "[graph] ", program.graph().name(),
            ": called by a kernel of its own call; a kernel computes from its inputs alone");
    return std::unique_lock(mutex);
  }

  void check_cache(const CacheUse& use) const {
    const std::string& name = program.graph().name();
    if (!kv_layout) {
      require(use.cache == nullptr, Code::kInvalidArgument, "[kv] ", name,
              ": a cache is given, but no attention has one");
      return;
    }
    require(use.cache != nullptr, Code::kInvalidArgument, "[kv] ", name, ": its attentions read a cache; give one");
    require(use.slots.size() == cached.size(), Code::kInvalidArgument, "[kv] ", name, ": ", use.slots.size(),
            " slots given, it has ", cached.size(), " cached attentions");
    const KvLayout& given = use.cache->layout();
    require(given.kv_heads == kv_layout->kv_heads && given.head_dim == kv_layout->head_dim &&
                given.dtype == kv_layout->dtype,
            Code::kInvalidArgument, "[kv] the cache has ", given.kv_heads, " heads of ", given.head_dim, " in ",
            dtype_name(given.dtype), ", the attention in ", cached.front().scope, " has ", kv_layout->kv_heads,
            " kv heads of ", kv_layout->head_dim, " in ", dtype_name(kv_layout->dtype));
  }

  // A mask must be for the keys that the cache holds after this call.
  void check_masks(const CacheUse& use, const Bindings& bindings) const {
    for (size_t i = 0; i < use.slots.size() && use.cache != nullptr; ++i) {
      if (!cached[i].mask_keys) continue;
      const int64_t past = use.cache->length(use.slots[i]), tokens = cached[i].tokens.eval(bindings);
      const int64_t keys = cached[i].mask_keys->eval(bindings);
      require(keys == past + tokens, Code::kInvalidArgument, "[kv] ", cached[i].scope, ": the mask is for ", keys,
              " keys, expected ", past + tokens, ": the ", past, " in the cache and the call's ", tokens);
    }
  }

  // Room in the cache for this call's tokens.
  std::unique_ptr<KvSlots::Step> start_step(const CacheUse& use, const Bindings& bindings) const {
    if (use.cache == nullptr) return nullptr;
    const CachedSlot& slot = cached.front();
    return std::make_unique<KvSlots::Step>(*use.cache, use.slots, slot.batch.eval(bindings),
                                           slot.tokens.eval(bindings));
  }

  std::vector<Tensor> run(std::span<const TensorView> given, std::shared_ptr<const void> owner, const CacheUse& use,
                          Trace* trace) {
    check_process();
    check_cache(use);
    const Graph& graph = program.graph();
    const std::vector<TensorView> inputs = with_state(graph, given);
    const Bindings bindings = bind_symbols(graph, inputs);
    const std::unique_lock held = lock();
    const Running running(caller);
    check_masks(use, bindings);
    const int64_t begin_ns = Trace::now_ns();
    const Plan& plan = plan_for(bindings);
    if (arena == nullptr || arena->size() < plan.arena_bytes()) {
      arena = std::make_shared<AlignedBuffer>(plan.arena_bytes(), "arena");
    }
    std::vector<Tensor> copies;
    const std::vector<TensorView> views = readable(plan, inputs, copies);
    std::vector<Tensor> outputs;
    std::vector<std::byte*> memory;
    for (const Value* output : graph.outputs()) {
      if (output->type().dtype == DType::kState) {  // the last one
        memory.push_back(nullptr);
        continue;
      }
      const DType dtype = output->type().dtype;
      std::vector<int64_t> shape = eval(output->shape(), bindings);
      const size_t bytes = byte_count(dtype, shape);
      outputs.push_back({results.take(outputs.size(), bytes), dtype, std::move(shape)});
      memory.push_back(outputs.back().data.get());
    }
    Frame frame = plan.resolve(bindings, views, memory, arena->data());
    using Lent = std::tuple<std::shared_ptr<const void>, std::shared_ptr<AlignedBuffer>, std::vector<Tensor>,
                            std::vector<Tensor>>;
    frame.memory = std::make_shared<Lent>(std::move(owner), arena, copies, outputs);
    const std::unique_ptr<KvSlots::Step> step = start_step(use, bindings);
    const std::span<const SequenceStep> sequences =
        step == nullptr ? std::span<const SequenceStep>() : step->sequences();
    executor.run(program, frame, sequences, trace, std::max<int64_t>(1, static_cast<int64_t>(cached.size())));
    // What no node wrote to its place: views, inputs, constants, a value returned twice.
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (frame.results[i].data == memory[i]) continue;
      if (graph.outputs()[i]->is_constant()) {
        copy_dense(*graph.outputs()[i]->constant(), memory[i]);
      } else {
        copy_dense(frame.results[i], memory[i]);
      }
    }
    if (step != nullptr) step->commit();
    record_call(trace, begin_ns, outputs);
    return outputs;
  }

  const pid_t process = getpid();
  const Precision precision;
  const OptLevel level;
  const MatchReport report;
  const std::vector<CachedSlot> cached;
  const std::optional<KvLayout> kv_layout;
  ThreadTeam team;
  PackedStore store;
  Program program;
  Executor executor;
  std::atomic<std::thread::id> caller;  // whose call is running
  std::mutex mutex;                     // guards what follows, and the team
  std::list<std::unique_ptr<Plan>> plans;
  std::shared_ptr<AlignedBuffer> arena;  // shared with what host kernels were lent
  ResultBuffers results;
};

CompiledGraph::CompiledGraph(std::unique_ptr<Graph> graph, const CompileOptions& options)
    : impl_(std::make_unique<Impl>(std::move(graph), options)) {}

CompiledGraph::~CompiledGraph() = default;

std::vector<Tensor> CompiledGraph::run(std::span<const TensorView> inputs, std::shared_ptr<const void> owner,
                                       const CacheUse& use, Trace* trace) {
  return impl_->run(inputs, std::move(owner), use, trace);
}

const std::vector<CachedSlot>& CompiledGraph::cached() const { return impl_->cached; }

const Graph& CompiledGraph::graph() const { return impl_->program.graph(); }

const MatchReport& CompiledGraph::report() const { return impl_->report; }

int CompiledGraph::threads() const { return impl_->team.size(); }

int64_t CompiledGraph::plans() const {
  impl_->check_process();
  const std::unique_lock lock = impl_->lock();
  return static_cast<int64_t>(impl_->plans.size());
}

}  // namespace atb
