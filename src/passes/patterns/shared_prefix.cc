// SPDX-License-Identifier: Apache-2.0
// SharedPrefix: attention whose keys are a prefix that the whole batch shares, then each sequence's own. The prefix is
// attended once for the batch, up to the last boundary of a partition; the rest goes on from its results. Partitions
// stay where they were, so the bits do too.
#include "core/kv_layout.h"
#include "passes/engine/matcher.h"
#include "passes/engine/pattern.h"
#include "passes/patterns/attention_steps_util.h"

namespace atb {
namespace {

using Perm = std::vector<int64_t>;

// Keys or values [B, S, KV, D] of the attention: concat(broadcast(prefix), own), possibly transposed.
struct Streams {
  Perm perm = {0, 1, 2, 3};
  int64_t axis = 0;  // of the concat that becomes S
  Value* prefix = nullptr;
  Value* own = nullptr;
  Value* shared = nullptr;  // the prefix before it was repeated over the batch
};

Streams streams_of(const Match& match, const std::string& name) {
  Streams streams;
  if (const Node* turn = match.node("turned " + name)) streams.perm = turn->attrs().get<Perm>("perm");
  const Node* concat = match.node(name);
  streams.axis = concat->attrs().integer("axis");
  if (streams.axis < 0) streams.axis += 4;
  streams.prefix = match.value(name + " prefix");
  streams.own = match.value(name + " own");
  streams.shared = match.node(name + " prefix")->input(0);
  return streams;
}

Dim length(const Streams& streams) { return streams.prefix->dim(static_cast<int>(streams.axis)); }
// Keys up to the last boundary of a partition; an unknown length may leave none, which is right too.
Dim cut_of(const Streams& streams) {
  return Dim(kAttentionPartition) * Dim::floordiv(length(streams), Dim(kAttentionPartition));
}

std::optional<Mismatch> check_stream(const Match& match, const std::string& name) {
  const Node* concat = match.node(name);
  const auto mismatch = [&](std::string actual, std::string expected) {
    return Mismatch{concat, std::move(actual), std::move(expected)};
  };
  if (concat->inputs().size() != 2) return mismatch(std::to_string(concat->inputs().size()) + " parts", "two parts");
  const Streams streams = streams_of(match, name);
  if (concat->output()->rank() != 4 || streams.perm[1] != streams.axis) {
    return mismatch("parts along axis " + std::to_string(streams.axis), "parts along the keys");
  }
  const Shape& repeated = streams.prefix->shape();
  const size_t batch = static_cast<size_t>(streams.perm[0]);
  // One sequence shares with nobody; how many an open batch will have is not known here.
  if (repeated[batch].upper() < 2) return mismatch("a batch of " + repeated[batch].str(), "two sequences or more");
  Shape once = repeated;
  once[batch] = Dim(1);
  if (equal(streams.shared->shape(), once) != Tri::kYes) {
    return mismatch("a prefix " + to_string(streams.shared->shape()), to_string(once) + ", repeated over the batch");
  }
  const Dim& keys = repeated[static_cast<size_t>(streams.axis)];
  if (keys.upper() < kAttentionPartition) return mismatch("a prefix of " + keys.str() + " keys", "128 or more");
  return std::nullopt;
}

std::optional<Mismatch> check_keys(const Match& match) { return check_stream(match, "keys"); }
std::optional<Mismatch> check_values(const Match& match) {
  if (auto mismatch = check_stream(match, "values")) return mismatch;
  const Dim keys = length(streams_of(match, "keys"));
  const Dim values = length(streams_of(match, "values"));
  if (equal(keys, values) == Tri::kYes) return std::nullopt;
  return Mismatch{match.node("values"), values.str() + " values before", keys.str() + " as keys"};
}

// The prefix is attended without a look at positions: every query must see all of it.
std::optional<Mismatch> check_visible(const Match& match) {
  const Node* attention = match.root();
  const int64_t window = attention->attrs().integer("window");
  if (window > 0) return Mismatch{attention, "a window of " + std::to_string(window), "a prefix that all queries see"};
  if (!attention->attrs().flag("causal")) return std::nullopt;
  const Streams streams = streams_of(match, "keys");
  const Dim later = streams.own->dim(static_cast<int>(streams.axis)) - attention->input(0)->dim(1);
  if (later.lower() >= 0) return std::nullopt;
  return Mismatch{attention, to_string(streams.own->shape()) + " own keys", "one for each query or more"};
}

void rewrite(const Match& match, Rewriter& rewriter) {
  const Node* attention = match.root();
  const Attrs& attrs = attention->attrs();
  const auto turned = [&](const Streams& streams, Value* x) { return rewriter.transpose(x, streams.perm); };
  const Streams keys = streams_of(match, "keys");
  const Streams values = streams_of(match, "values");
  const Dim cut = cut_of(keys);
  const auto shared = [&](const Streams& s) { return turned(s, part_of(rewriter, s.shared, s.axis, Dim(0), cut)); };
  const auto own = [&](const Streams& s) {
    if (equal(cut, length(s)) == Tri::kYes) return turned(s, s.own);
    Shape repeated = s.prefix->shape();
    repeated[static_cast<size_t>(s.axis)] = length(s) - cut;
    Value* rest =
        rewriter.value("broadcast", {part_of(rewriter, s.shared, s.axis, cut, length(s))}, {{"shape", repeated}});
    return turned(s, rewriter.value("concat", {rest, s.own}, {{"axis", s.axis}}));
  };
  Value* q = attention->input(0);
  Value* mask = match.value("mask");
  const auto mask_part = [&](const Dim& begin, const Dim& end) {
    return mask == nullptr ? nullptr : part_of(rewriter, mask, mask->rank() - 1, begin, end);
  };
  Attrs steps = {{"scale", attrs.real("scale")}, {"softcap", attrs.real("softcap")}};
  Value* prefix_keys = shared(keys);
  Value* prefix_values = shared(values);
  const AttentionPartials prefix = attend_block(rewriter, q, prefix_keys, prefix_values, mask_part(Dim(0), cut), steps);
  steps.set("causal", attrs.flag("causal"));
  const AttentionPartials earlier = only_partial(rewriter, prefix);
  Value* own_keys = own(keys);
  Value* own_values = own(values);
  Value* own_mask = mask_part(cut, attention->input(1)->dim(1));
  const AttentionPartials all = attend_block(rewriter, q, own_keys, own_values, own_mask, steps, earlier);
  rewriter.replace(attention->output(), finish_attention(rewriter, all));
}

// concat(broadcast(x), own), or a transpose of it.
PatternId stream(Pattern& p, const std::string& name) {
  const PatternId prefix = p.op(name + " prefix", {"broadcast"}, {p.any(name + " shared")});
  const PatternId concat = p.op(name, {"concat"}, {p.extra_output(prefix), p.any(name + " own")});
  const PatternId turned = p.op("turned " + name, {"transpose"}, {p.extra_output(concat)});
  return p.one_of("all " + name, {p.extra_output(turned), concat});
}

}  // namespace

void register_pattern_shared_prefix(PatternRegistry& registry) {
  Pattern p("SharedPrefix", "BlockAttention+OutputMerge", 90);
  const PatternId keys = stream(p, "keys");
  const PatternId values = stream(p, "values");
  p.root(p.op("attention", {"flash_attention"}, {p.any("q"), keys, values, p.optional(p.any("mask"))}));
  p.where("keys after a shared prefix", check_keys);
  p.where("values after a shared prefix", check_values);
  p.where("a prefix that all queries see", check_visible);
  p.rewrite(rewrite);
  p.rare();
  registry.add(std::move(p));
}

}  // namespace atb
