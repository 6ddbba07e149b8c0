// SPDX-License-Identifier: Apache-2.0
// Serves concurrent callers on one session: requests are batched into ragged steps, never interleaved inside a step.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "atb/generation.h"
#include "core/trace.h"
#include "runtime/generate/request.h"
#include "runtime/generate/sampling.h"
#include "runtime/kv/block_pool.h"
#include "runtime/session.h"

namespace atb {

struct EngineOptions {
  SessionOptions session;
  int64_t context_length = 0;  // longest sequence of the model; 0 is not allowed
  int64_t prefill_chunk = 0;   // new tokens a step beside decoding rows; 0: 512
  int64_t kv_tokens = 0;       // positions that the cache can hold; 0: up to 4 contexts, within half of the free memory
};

struct EngineStats {
  int64_t kv_blocks_in_use = 0;
  int64_t kv_blocks_total = 0;
  int64_t kv_block_tokens = 0;
  size_t kv_block_bytes = 0;
  int64_t requests = 0;  // submitted and not released
  SessionStats session;
};

// There is no thread of its own: whichever caller waits in next() drives the steps that serve everybody. All functions
// may be called from several threads. In a forked child every call throws kFailedPrecondition at once.
class Engine {
 public:
  using RequestId = int64_t;

  Engine(std::unique_ptr<Graph> step_graph, const Device& device, const EngineOptions& options);
  ~Engine();

  // Queues a prompt. kInvalidArgument: empty prompt, an id outside the vocabulary, a prompt longer than the context,
  // bad parameters. kResourceExhausted: a sequence that could never fit in the cache. `stream` tells requests that
  // share a seed apart.
  RequestId submit(std::vector<int32_t> prompt, const SamplingParams& params, uint64_t stream = 0);
  // Waits for at least one new token or the end. After the end: no tokens, the same reason. `between_steps` is called
  // outside the lock after each step and may throw to stop waiting (the request stays as it is).
  using Poll = std::function<void()>;
  Progress next(RequestId id, const Poll& between_steps = {});
  // Ends a request early; its next() reports "cancelled". Its KV blocks are back when cancel() returns.
  void cancel(RequestId id);
  // Forgets a request, cancelling it if need be. Unknown ids are ignored.
  void release(RequestId id);
  RequestTiming timing(RequestId id) const;

  // Runs sequences through the model together and hands each chunk of logits to `consume(sequence, first_row, rows,
  // logits)`; logits are [rows, vocab], valid during the call.
  using ConsumeLogits = std::function<void(int64_t sequence, int64_t first_row, int64_t rows, const float* logits)>;
  void logits(const std::vector<std::vector<int32_t>>& sequences, const ConsumeLogits& consume,
              const Poll& between_steps = {});

  int64_t vocab() const { return session_.vocab(); }
  int64_t context_length() const { return options_.context_length; }
  int threads() const { return session_.threads(); }
  const KvLayout& kv_layout() const { return session_.kv_layout(); }
  const Graph& graph() const { return session_.graph(); }
  EngineStats stats() const;

  void start_trace();
  void write_trace(const std::string& path);  // ends tracing
  // What the trace holds so far, summed by node (see runtime/profile.h). kFailedPrecondition where none was started.
  std::string profile_json(bool each_node = false) const;

 private:
  using Lock = std::unique_lock<std::mutex>;

  void check_process() const;
  void check_ids(const std::vector<int32_t>& ids) const;
  RequestId enqueue(std::shared_ptr<Request> request);
  std::shared_ptr<Request> find(RequestId id) const;
  void drive_until(Lock& lock, const std::function<bool()>& done, const Poll& between_steps);
  void step(Lock& lock);
  void admit();
  void compose(std::vector<StepShare>& shares);
  void fail(const std::vector<StepShare>& shares, std::exception_ptr error);
  void finish(Request& request, FinishReason reason);
  void end(Lock& lock, Request& request);
  void take_logits(Request& request, const StepShare& share, const float* row);
  void deliver(const std::vector<StepShare>& shares, std::span<const float> logits);
  void run_step(Lock& lock, std::vector<StepShare>& shares);
  void record(const char* category, const char* name, int64_t begin_ns, int64_t rows = -1) const;

  EngineOptions options_;
  Session session_;
  std::unique_ptr<KvBlockPool> pool_;
  StepInput input_;

  mutable std::mutex mutex_;
  mutable std::condition_variable progress_;
  std::map<RequestId, std::shared_ptr<Request>> requests_;  // in order of submission
  RequestId next_id_ = 1;
  int64_t reserved_blocks_ = 0;  // by admitted requests, at their longest
  bool stepping_ = false;        // a caller runs a step outside the lock
  std::unique_ptr<Trace> trace_;
  int64_t process_;
};

}  // namespace atb
