// SPDX-License-Identifier: Apache-2.0
// Roofline measurements: loops that do nothing but read, or nothing but multiply and add.
#include "kernels/roofline.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/memory.h"
#include "core/thread_team.h"
#include "hwy/cache_control.h"
#include "kernels/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/roofline.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace atb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kStep = 128;      // bytes of one stream read in turn: two cache lines
constexpr size_t kPrefetch = 320;  // bytes ahead: far enough to help, near enough to stay in L1

// Reads `bytes` (a multiple of kStreams * kStep) as kStreams far streams, as matrix-vector kernels read their panels.
// Returns a mix of all words, so that no load can be left out.
template <size_t kStreams>
HWY_ATTR uint64_t read_streams(const uint8_t* data, size_t bytes) {
  const hn::CappedTag<uint64_t, kStep / 2 / sizeof(uint64_t)> d;
  const size_t width = hn::Lanes(d) * sizeof(uint64_t), stream = bytes / kStreams;
  auto a = hn::Zero(d), b = hn::Zero(d);
  for (size_t i = 0; i < stream; i += kStep) {
    for (size_t s = 0; s < kStreams; ++s) {
      const uint8_t* from = data + s * stream + i;
      hwy::Prefetch(from + kPrefetch);
      hwy::Prefetch(from + kPrefetch + kStep / 2);
      for (size_t j = 0; j < kStep; j += 2 * width) {
        a = hn::Xor(a, hn::Load(d, reinterpret_cast<const uint64_t*>(from + j)));
        b = hn::Xor(b, hn::Load(d, reinterpret_cast<const uint64_t*>(from + j + width)));
      }
    }
  }
  return hn::GetLane(hn::Xor(a, b));
}

HWY_ATTR uint64_t read_4_streams(const uint8_t* data, size_t bytes) { return read_streams<4>(data, bytes); }
HWY_ATTR uint64_t read_8_streams(const uint8_t* data, size_t bytes) { return read_streams<8>(data, bytes); }

// Operations of `rounds` rounds of 12 independent vector multiply-adds: more chains than latency times units (8), and
// with the two factors no more registers than AVX2 has. Separate names, because an array may end up in memory.
HWY_ATTR double multiply_add(int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  const auto m = hn::Set(d, 0.999f), n = hn::Set(d, 0.001f);
  auto a0 = hn::Set(d, 0.0f), a1 = hn::Set(d, 0.1f), a2 = hn::Set(d, 0.2f), a3 = hn::Set(d, 0.3f);
  auto a4 = hn::Set(d, 0.4f), a5 = hn::Set(d, 0.5f), a6 = hn::Set(d, 0.6f), a7 = hn::Set(d, 0.7f);
  auto a8 = hn::Set(d, 0.8f), a9 = hn::Set(d, 0.9f), a10 = hn::Set(d, 1.1f), a11 = hn::Set(d, 1.2f);
  for (int64_t i = 0; i < rounds; ++i) {
    a0 = hn::MulAdd(a0, m, n);
    a1 = hn::MulAdd(a1, m, n);
    a2 = hn::MulAdd(a2, m, n);
    a3 = hn::MulAdd(a3, m, n);
    a4 = hn::MulAdd(a4, m, n);
    a5 = hn::MulAdd(a5, m, n);
    a6 = hn::MulAdd(a6, m, n);
    a7 = hn::MulAdd(a7, m, n);
    a8 = hn::MulAdd(a8, m, n);
    a9 = hn::MulAdd(a9, m, n);
    a10 = hn::MulAdd(a10, m, n);
    a11 = hn::MulAdd(a11, m, n);
  }
  const auto low = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)), hn::Add(a4, a5));
  const auto high = hn::Add(hn::Add(hn::Add(a6, a7), hn::Add(a8, a9)), hn::Add(a10, a11));
  *sink = hn::GetLane(hn::Add(low, high));
  return static_cast<double>(rounds) * 12 * 2 * static_cast<double>(hn::Lanes(d));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace atb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace atb {
HWY_EXPORT(read_4_streams);
HWY_EXPORT(read_8_streams);
HWY_EXPORT(multiply_add);

namespace {

constexpr size_t kLeastBytes = size_t{1} << 20;
constexpr int64_t kRounds = 200'000;  // of multiply_add: well under a millisecond

// Repeats `once`, which returns an amount, at least three times and until `seconds` have passed; the best amount a
// second.
template <class Once>
double best_rate(double seconds, const Once& once) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  double best = 0;
  const auto start = Clock::now();
  for (int i = 0; i < 3 || since(start) < seconds; ++i) {
    const auto begin = Clock::now();
    const double amount = once(i);
    best = std::max(best, amount / since(begin));
  }
  return best;
}

// A result per worker, each on its own cache line.
template <class T>
struct alignas(64) PerWorker {
  T value{};
};

}  // namespace

double measure_read_gb_s(ThreadTeam& team, size_t bytes, double seconds) {
  const size_t workers = static_cast<size_t>(team.size());
  const size_t share = align_up(std::max(bytes, kLeastBytes) / workers, 8 * HWY_NAMESPACE::kStep);
  require_memory(share * workers, "roofline", "the read measurement");
  const AlignedBuffer buffer(share * workers, "roofline");
  const auto part = [&](int worker) { return buffer.data() + static_cast<size_t>(worker) * share; };
  team.run([&](int worker) { std::memset(part(worker), worker + 1, share); });  // untouched pages are all the same one
  std::vector<PerWorker<uint64_t>> sinks(workers);
  return best_rate(seconds,
                   [&](int round) {
                     team.run([&](int worker) {
                       const auto* data = reinterpret_cast<const uint8_t*>(part(worker));
                       sinks[static_cast<size_t>(worker)].value ^=
                           round % 2 == 0 ? HWY_DYNAMIC_DISPATCH(read_4_streams)(data, share)
                                          : HWY_DYNAMIC_DISPATCH(read_8_streams)(data, share);
                     });
                     return static_cast<double>(share * workers);
                   }) /
         1e9;
}

double measure_f32_gflop_s(ThreadTeam& team, double seconds) {
  std::vector<PerWorker<double>> operations(static_cast<size_t>(team.size()));
  std::vector<PerWorker<float>> sinks(operations.size());
  return best_rate(seconds,
                   [&](int) {
                     team.run([&](int worker) {
                       const size_t i = static_cast<size_t>(worker);
                       operations[i].value = HWY_DYNAMIC_DISPATCH(multiply_add)(kRounds, &sinks[i].value);
                     });
                     double sum = 0;
                     for (const auto& part : operations) sum += part.value;
                     return sum;
                   }) /
         1e9;
}

Roofline measure_roofline(ThreadTeam& team, size_t read_bytes) {
  Roofline result;
  result.threads = team.size();
  result.read_bytes = std::max(read_bytes, kLeastBytes);
  result.f32_gflop_s = measure_f32_gflop_s(team);
  result.read_gb_s = measure_read_gb_s(team, read_bytes);
  result.target = cpu_target_name();
  return result;
}

}  // namespace atb
#endif  // HWY_ONCE
