// SPDX-License-Identifier: Apache-2.0
#include "runtime/generate/engine.h"

#include <unistd.h>

#include <algorithm>

#include "core/error.h"
#include "core/memory.h"
#include "runtime/profile.h"

namespace atb {
namespace {

constexpr int64_t kDefaultPrefillChunk = 512;
constexpr int64_t kDefaultContexts = 4;  // how many full-length sequences the cache holds, memory permitting

int64_t default_kv_tokens(const EngineOptions& options, const KvLayout& layout) {
  const int64_t wanted = kDefaultContexts * options.context_length;
  const int64_t affordable = static_cast<int64_t>(available_memory_bytes() / 2 / layout.token_bytes());
  return std::min(wanted, std::max(affordable, layout.block_tokens));
}

// What a caller asks for must be there: the cache takes memory only as it fills, too late for a clear error.
void require_kv_memory(int64_t tokens, const KvLayout& layout) {
  constexpr int64_t kMost = int64_t{1} << 40;
  require(tokens >= 0 && tokens <= kMost, Code::kInvalidArgument, "[engine] kv_tokens is ", tokens,
          ", allowed are 1 to ", kMost, " (0: the default)");
  require_memory(static_cast<size_t>(tokens) * layout.token_bytes(), "kv",
                 "a cache of " + std::to_string(tokens) + " tokens");
}

double seconds(Request::Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Engine::Engine(std::unique_ptr<Graph> step_graph, const Device& device, const EngineOptions& options)
    : options_(options), session_(std::move(step_graph), device, options.session), process_(getpid()) {
  require(options_.context_length > 0, Code::kInvalidArgument, "[engine] context_length is ", options_.context_length,
          ", needs at least 1");
  require(options_.prefill_chunk >= 0, Code::kInvalidArgument, "[engine] prefill_chunk is ", options_.prefill_chunk,
          ", needs at least 1 (0: the default)");
  require_kv_memory(options_.kv_tokens, session_.kv_layout());
  if (options_.prefill_chunk == 0) options_.prefill_chunk = kDefaultPrefillChunk;
  if (options_.kv_tokens == 0) options_.kv_tokens = default_kv_tokens(options_, session_.kv_layout());
  const int64_t block = kv_layout().block_tokens;
  pool_ = std::make_unique<KvBlockPool>(kv_layout(), options_.kv_tokens / block + (options_.kv_tokens % block != 0));
}

Engine::~Engine() = default;

void Engine::check_process() const {
  require(getpid() == process_, Code::kFailedPrecondition, "[engine] used in a forked process: process ", getpid(),
          ", made in ", process_, "; make a new engine in the child, or start it with spawn");
}

void Engine::check_ids(const std::vector<int32_t>& ids) const {
  require(!ids.empty(), Code::kInvalidArgument, "[engine] the prompt is empty: give at least one token");
  require(static_cast<int64_t>(ids.size()) <= options_.context_length, Code::kInvalidArgument,
          "[engine] the prompt has ", ids.size(), " tokens, the context holds ", options_.context_length,
          "; shorten the prompt");
  for (size_t i = 0; i < ids.size(); ++i) {
    require(ids[i] >= 0 && ids[i] < vocab(), Code::kInvalidArgument, "[engine] token ", i, " of the prompt is ", ids[i],
            ", allowed are 0 to ", vocab() - 1);
  }
}

Engine::RequestId Engine::enqueue(std::shared_ptr<Request> request) {
  // The last generated token is never fed back, so it needs no position.
  const int64_t new_tokens = request->consume ? 0 : request->sampler.params().max_new_tokens;
  const int64_t longest = request->prompt_tokens + std::max<int64_t>(new_tokens - 1, 0);
  require_kv_capacity(kv_layout(), longest, static_cast<size_t>(pool_->total()) * kv_layout().block_bytes());
  request->reserved_blocks = pool_->blocks_for(longest);
  request->submitted = Request::Clock::now();
  const RequestId id = next_id_++;
  requests_[id] = std::move(request);
  return id;
}

Engine::RequestId Engine::submit(std::vector<int32_t> prompt, const SamplingParams& params, uint64_t stream) {
  check_process();
  check_ids(prompt);
  validate(params, vocab());
  SamplingParams limited = params;
  const int64_t room = options_.context_length - static_cast<int64_t>(prompt.size()) + 1;
  limited.max_new_tokens = std::min(params.max_new_tokens, room);
  auto request = std::make_shared<Request>(std::move(prompt), limited, stream);
  request->finished = request->stop.at_start();
  const Lock lock(mutex_);
  return enqueue(std::move(request));
}

std::shared_ptr<Request> Engine::find(RequestId id) const {
  const auto it = requests_.find(id);
  require(it != requests_.end(), Code::kInvalidArgument, "[engine] no request ", id, ": it was released or never made");
  return it->second;
}

Progress Engine::next(RequestId id, const Poll& between_steps) {
  check_process();
  Lock lock(mutex_);
  const std::shared_ptr<Request> held = find(id);
  Request& request = *held;
  const auto ready = [&] {
    return request.is_finished() || static_cast<int64_t>(request.delivered) < request.generated();
  };
  drive_until(lock, ready, between_steps);
  if (request.error) std::rethrow_exception(request.error);
  const auto first_new = request.tokens.begin() + request.prompt_tokens + static_cast<int64_t>(request.delivered);
  Progress progress{{first_new, request.tokens.end()}, request.finished};
  request.delivered += progress.tokens.size();
  return progress;
}

// Steps until done(); while another caller steps, waits for what its step brings.
void Engine::drive_until(Lock& lock, const std::function<bool()>& done, const Poll& between_steps) {
  while (!done()) {
    if (stepping_) {
      progress_.wait(lock);
    } else {
      step(lock);
    }
    if (!between_steps) continue;
    lock.unlock();
    between_steps();
    lock.lock();
  }
}

void Engine::cancel(RequestId id) {
  check_process();
  Lock lock(mutex_);
  end(lock, *find(id));
}

// Ends a request now, or when the step that it is part of has ended.
void Engine::end(Lock& lock, Request& request) {
  request.cancelled = true;
  progress_.wait(lock, [&] { return !request.in_step; });
  if (!request.is_finished()) finish(request, FinishReason::kCancelled);
}

void Engine::release(RequestId id) {
  check_process();
  Lock lock(mutex_);
  const auto it = requests_.find(id);
  if (it == requests_.end()) return;
  const std::shared_ptr<Request> request = it->second;
  end(lock, *request);
  requests_.erase(id);
}

void Engine::finish(Request& request, FinishReason reason) {
  request.finished = reason;
  if (request.kv != nullptr) {
    request.kv.reset();
    reserved_blocks_ -= request.reserved_blocks;
  }
  progress_.notify_all();
}

// Gives waiting requests their cache, in order of submission; one that must wait holds back those after it.
void Engine::admit() {
  for (auto& [id, request] : requests_) {
    if (request->is_finished() || request->kv != nullptr) continue;
    if (reserved_blocks_ + request->reserved_blocks > pool_->total()) return;
    reserved_blocks_ += request->reserved_blocks;
    request->kv = std::make_unique<KvSequence>(*pool_);
  }
}

// Decoding requests take one row each; the prefill budget is shared evenly by the others.
void Engine::compose(std::vector<StepShare>& shares) {
  std::vector<Request*> prefilling;
  for (auto& [id, request] : requests_) {
    if (request->is_finished() || request->kv == nullptr) continue;
    if (request->decoding()) {
      shares.push_back({request.get(), 1});
    } else {
      prefilling.push_back(request.get());
    }
  }
  int64_t budget = options_.prefill_chunk;
  for (size_t i = 0; i < prefilling.size() && budget > 0; ++i) {
    const int64_t sharers = static_cast<int64_t>(prefilling.size() - i);
    const int64_t rows = std::min(prefilling[i]->pending(), (budget + sharers - 1) / sharers);
    shares.push_back({prefilling[i], rows});
    budget -= rows;
  }

  input_.clear();
  for (StepShare& share : shares) {
    Request& request = *share.request;
    const int64_t past = request.kv->length();
    const int64_t first_row = static_cast<int64_t>(input_.ids.size());
    request.kv->ensure(past + share.rows);
    const auto begin = request.tokens.begin() + past;
    input_.ids.insert(input_.ids.end(), begin, begin + share.rows);
    for (int64_t i = 0; i < share.rows; ++i) input_.positions.push_back(static_cast<int32_t>(past + i));
    const bool completes = share.rows == request.pending();
    share.logit_rows = request.consume ? share.rows : (completes ? 1 : 0);
    if (share.logit_rows > 0) share.logit_row = static_cast<int64_t>(input_.logit_rows.size());
    for (int64_t i = share.rows - share.logit_rows; i < share.rows; ++i) {
      input_.logit_rows.push_back(static_cast<int32_t>(first_row + i));
    }
    input_.sequences.push_back({first_row, share.rows, past, request.kv->blocks()});
  }
}

// Runs one step for everybody. A failed step leaves every sequence as it was and ends its requests with the error.
void Engine::step(Lock& lock) {
  const int64_t begin_ns = trace_ == nullptr ? 0 : Trace::now_ns();
  admit();
  std::vector<StepShare> shares;
  try {
    compose(shares);
  } catch (...) {
    fail(shares, std::current_exception());
    return;
  }
  require(!shares.empty(), Code::kInternal, "[engine] nothing to run, yet a request waits");
  run_step(lock, shares);
  const int64_t rows = static_cast<int64_t>(input_.ids.size());
  if (begin_ns != 0) record("step", rows == static_cast<int64_t>(shares.size()) ? "decode" : "prefill", begin_ns, rows);
  progress_.notify_all();
}

// The step itself runs outside the lock.
void Engine::run_step(Lock& lock, std::vector<StepShare>& shares) {
  std::exception_ptr error;
  std::span<const float> logits;
  stepping_ = true;
  for (StepShare& share : shares) share.request->in_step = true;
  lock.unlock();
  try {
    logits = session_.run(input_);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  stepping_ = false;
  for (StepShare& share : shares) share.request->in_step = false;
  if (error) {
    fail(shares, error);
    return;
  }
  const int64_t begin_ns = trace_ == nullptr ? 0 : Trace::now_ns();
  deliver(shares, logits);
  if (begin_ns != 0) record("sample", "sample", begin_ns);
}

// An event of the caller's row that ends now.
void Engine::record(const char* category, const char* name, int64_t begin_ns, int64_t rows) const {
  if (trace_ == nullptr) return;
  trace_->record(trace_->intern({.name = name, .category = category}), begin_ns, Trace::now_ns(), 0, rows);
}

void Engine::fail(const std::vector<StepShare>& shares, std::exception_ptr error) {
  for (const StepShare& share : shares) {
    share.request->error = error;
    finish(*share.request, FinishReason::kCancelled);
  }
}

// Commits the step's keys and values, then samples or hands out logits. A caller's error ends its own request only.
void Engine::deliver(const std::vector<StepShare>& shares, std::span<const float> logits) {
  for (const StepShare& share : shares) {
    Request& request = *share.request;
    if (request.cancelled) {
      finish(request, FinishReason::kCancelled);
      continue;
    }
    request.kv->commit(share.rows);
    if (share.logit_rows == 0) continue;
    try {
      take_logits(request, share, logits.data() + share.logit_row * vocab());
    } catch (...) {
      request.error = std::current_exception();
      finish(request, FinishReason::kCancelled);
    }
  }
}

// Hands the logits of this step to who wants them, or samples the next token from the last row.
void Engine::take_logits(Request& request, const StepShare& share, const float* row) {
  if (request.consume) {
    request.consume(request.kv->length() - share.rows, share.logit_rows, row);
    if (request.pending() == 0) finish(request, FinishReason::kLength);
    return;
  }
  const int32_t token =
      request.sampler.sample({row, static_cast<size_t>(vocab())}, static_cast<uint64_t>(request.generated()));
  request.last_token = Request::Clock::now();
  if (request.generated() == 0) request.first_token = request.last_token;
  const FinishReason reason = request.stop.after(token, request.generated() + 1);
  if (reason != FinishReason::kStop) request.tokens.push_back(token);
  if (reason != FinishReason::kNone) finish(request, reason);
}

void Engine::logits(const std::vector<std::vector<int32_t>>& sequences, const ConsumeLogits& consume,
                    const Poll& between_steps) {
  check_process();
  for (const auto& ids : sequences) check_ids(ids);
  std::vector<RequestId> ids;
  {
    const Lock lock(mutex_);
    for (size_t s = 0; s < sequences.size(); ++s) {
      auto request = std::make_shared<Request>(sequences[s], SamplingParams{}, 0);
      request->consume = [&consume, s](int64_t first_row, int64_t rows, const float* row) {
        consume(static_cast<int64_t>(s), first_row, rows, row);
      };
      ids.push_back(enqueue(std::move(request)));
    }
  }
  std::exception_ptr error;
  try {
    Lock lock(mutex_);
    for (RequestId id : ids) {
      const std::shared_ptr<Request> request = find(id);
      drive_until(
          lock, [&] { return request->is_finished(); }, between_steps);
      if (request->error && !error) error = request->error;
    }
  } catch (...) {
    error = std::current_exception();
  }
  for (RequestId id : ids) release(id);
  if (error) std::rethrow_exception(error);
}

RequestTiming Engine::timing(RequestId id) const {
  check_process();
  const Lock lock(mutex_);
  const std::shared_ptr<Request> held = find(id);
  const Request& request = *held;
  RequestTiming timing;
  timing.prompt_tokens = request.prompt_tokens;
  timing.generated_tokens = request.generated();
  if (request.first_token > request.submitted) timing.prefill_s = seconds(request.first_token - request.submitted);
  if (request.last_token > request.first_token) timing.decode_s = seconds(request.last_token - request.first_token);
  return timing;
}

EngineStats Engine::stats() const {
  check_process();
  Lock lock(mutex_);
  EngineStats stats;
  stats.kv_blocks_in_use = pool_->in_use();
  stats.kv_blocks_total = pool_->total();
  stats.kv_block_tokens = kv_layout().block_tokens;
  stats.kv_block_bytes = kv_layout().block_bytes();
  stats.requests = static_cast<int64_t>(requests_.size());
  if (!stepping_) stats.session = session_.stats();
  return stats;
}

void Engine::start_trace() {
  check_process();
  Lock lock(mutex_);
  progress_.wait(lock, [&] { return !stepping_; });
  trace_ = std::make_unique<Trace>();
  trace_->enable();
  session_.set_trace(trace_.get());
}

std::string Engine::profile_json(bool each_node) const {
  check_process();
  Lock lock(mutex_);
  progress_.wait(lock, [&] { return !stepping_; });
  require(trace_ != nullptr, Code::kFailedPrecondition, "[trace] no trace was started");
  return atb::profile_json(*trace_, each_node);
}

void Engine::write_trace(const std::string& path) {
  check_process();
  Lock lock(mutex_);
  progress_.wait(lock, [&] { return !stepping_; });
  require(trace_ != nullptr, Code::kFailedPrecondition, "[trace] no trace was started");
  session_.set_trace(nullptr);
  trace_->save(path);
  trace_.reset();
}

}  // namespace atb
