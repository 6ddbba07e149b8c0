// SPDX-License-Identifier: Apache-2.0
#include "runtime/profile.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace atb {
namespace {

using Json = nlohmann::ordered_json;

double microseconds(const TraceEvent& event) { return static_cast<double>(event.duration_ns) / 1000; }
int64_t end_of(const TraceEvent& event) { return event.begin_ns + event.duration_ns; }

// One name for the like nodes of all layers: "layers.*.down" for "layers.3.down" of layer 3, and "layers.*.attention"
// for "attention_3", whatever its layer.
std::string over_layers(std::string name, int layer) {
  if (layer < 0) return name;
  const std::string number = "." + std::to_string(layer) + ".";
  const size_t at = name.find(number);
  if (at != std::string::npos) return name.replace(at, number.size(), ".*.");
  const size_t stem = name.find_last_not_of("0123456789");
  if (stem != std::string::npos && stem > 0 && name[stem] == '_') name.resize(stem);
  return "layers.*." + name;
}

class Profiler {
 public:
  Profiler(const Trace& trace, bool each_node)
      : events_(trace.events()), labels_(trace.labels()), each_node_(each_node) {}

  std::vector<PhaseProfile> run() {
    for (const TraceEvent& event : events_) {
      if (label(event).category == "step") steps_.push_back(&event);
    }
    for (size_t i = 0; i < steps_.size(); ++i) add_step(i);
    for (const TraceEvent& event : events_) add_event(event);
    for (PhaseProfile& phase : phases_) {
      double inside = phase.wait_us + phase.sampling_us + phase.between_us;
      for (const ProfileRow& row : phase.rows) inside += row.wall_us;
      phase.rest_us = phase.wall_us - inside;
    }
    return std::move(phases_);
  }

 private:
  const TraceLabel& label(const TraceEvent& event) const { return labels_[event.label]; }

  size_t phase_named(const std::string& name) {
    for (size_t i = 0; i < phases_.size(); ++i) {
      if (phases_[i].name == name) return i;
    }
    phases_.emplace_back().name = name;
    return phases_.size() - 1;
  }

  void add_step(size_t index) {
    const TraceEvent& step = *steps_[index];
    const size_t number = phase_named(label(step).name);
    phase_of_step_.push_back(number);
    PhaseProfile& phase = phases_[number];
    ++phase.steps;
    phase.tokens += std::max<int64_t>(step.rows, 0);
    phase.wall_us += microseconds(step);
    if (index == 0 || phase_of_step_[index - 1] != number) return;
    const double gap = static_cast<double>(step.begin_ns - end_of(*steps_[index - 1])) / 1000;
    phase.between_us += gap;
    phase.wall_us += gap;
  }

  // The phase whose step holds the event; null outside of steps.
  PhaseProfile* phase_at(const TraceEvent& event) {
    const auto after = std::upper_bound(steps_.begin(), steps_.end(), event.begin_ns,
                                        [](int64_t begin, const TraceEvent* step) { return begin < step->begin_ns; });
    if (after == steps_.begin() || end_of(event) > end_of(**(after - 1))) return nullptr;
    return &phases_[phase_of_step_[static_cast<size_t>(after - steps_.begin()) - 1]];
  }

  void add_event(const TraceEvent& event) {
    const TraceLabel& what = label(event);
    PhaseProfile* phase = what.category == "step" ? nullptr : phase_at(event);
    if (phase == nullptr) return;
    const bool caller = event.worker == 0;
    if (what.category == "launch") {
      ++phase->launches;
    } else if (what.category == "node") {
      add_node(*phase, event);
    } else if (what.category == "wait") {
      ++phase->waits;
      phase->worker_wait_us += microseconds(event);
      if (caller) phase->wait_us += microseconds(event);
      if (caller && what.name.starts_with(kWaitFor)) {
        row_of(*phase, what.name.substr(kWaitFor.size()), what.layer).wait_us += microseconds(event);
      }
    } else if (what.category == "wake") {
      ++phase->wakeups;
      phase->wakeups_from_park += what.name == kWakeFromPark ? 1 : 0;
      phase->wakeup_us += microseconds(event);
    } else if (what.category == "sample" && caller) {
      phase->sampling_us += microseconds(event);
    }
  }

  ProfileRow& row_of(PhaseProfile& phase, const std::string& node, int layer) {
    const std::string name = each_node_ ? node : over_layers(node, layer);
    const auto [at, added] = row_index_.try_emplace({phase.name, name}, phase.rows.size());
    if (added) phase.rows.emplace_back().name = name;
    return phase.rows[at->second];
  }

  void add_node(PhaseProfile& phase, const TraceEvent& event) {
    const TraceLabel& what = label(event);
    ProfileRow& row = row_of(phase, what.name, what.layer);
    row.op = what.op;
    row.in_layers = what.layer >= 0;
    if (row.variant.find(what.variant) == std::string::npos) {
      row.variant += (row.variant.empty() ? "" : ", ") + what.variant;
    }
    row.worker_us += microseconds(event);
    if (event.worker == 0) row.wall_us += microseconds(event);
    // A node may run in several phases and on several workers, in one step.
    const auto step = std::upper_bound(steps_.begin(), steps_.end(), event.begin_ns,
                                       [](int64_t begin, const TraceEvent* s) { return begin < s->begin_ns; });
    if (seen_[{what.name, step - steps_.begin()}]++ == 0) ++row.count;
  }

  const std::vector<TraceEvent> events_;
  const std::vector<TraceLabel> labels_;
  const bool each_node_;
  std::vector<const TraceEvent*> steps_;  // by time
  std::vector<size_t> phase_of_step_;
  std::vector<PhaseProfile> phases_;
  std::map<std::pair<std::string, std::string>, size_t> row_index_;
  std::map<std::pair<std::string, std::ptrdiff_t>, int> seen_;  // node and step
};

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

Json to_json(const ProfileRow& row, double phase_us) {
  return {{"name", row.name},
          {"op", row.op},
          {"variant", row.variant},
          {"in_layers", row.in_layers},
          {"count", row.count},
          {"total_ms", row.wall_us / 1000},
          {"mean_us", row.count > 0 ? row.wall_us / static_cast<double>(row.count) : 0},
          {"share", share(row.wall_us, phase_us)},
          {"wait_ms", row.wait_us / 1000},
          {"worker_ms", row.worker_us / 1000}};
}

Json to_json(const PhaseProfile& phase) {
  Json json = {{"steps", phase.steps},
               {"launches", phase.launches},
               {"tokens", phase.tokens},
               {"total_ms", phase.wall_us / 1000}};
  json["nodes"] = Json::array();
  for (const ProfileRow& row : phase.rows) json["nodes"].push_back(to_json(row, phase.wall_us));
  json["waits"] = {{"count", phase.waits},
                   {"total_ms", phase.wait_us / 1000},
                   {"share", share(phase.wait_us, phase.wall_us)},
                   {"worker_ms", phase.worker_wait_us / 1000}};
  json["wakeups"] = {{"count", phase.wakeups},
                     {"from_park", phase.wakeups_from_park},
                     {"mean_us", phase.wakeups > 0 ? phase.wakeup_us / static_cast<double>(phase.wakeups) : 0},
                     {"worker_ms", phase.wakeup_us / 1000}};
  json["elsewhere"] = {{"total_ms", phase.elsewhere_us() / 1000},
                       {"share", share(phase.elsewhere_us(), phase.wall_us)},
                       {"sampling_ms", phase.sampling_us / 1000},
                       {"between_steps_ms", phase.between_us / 1000},
                       {"planning_and_launch_ms", phase.rest_us / 1000}};
  return json;
}

}  // namespace

std::vector<PhaseProfile> profile(const Trace& trace, bool each_node) { return Profiler(trace, each_node).run(); }

std::string profile_json(const Trace& trace, bool each_node) {
  Json json = Json::object();
  for (const PhaseProfile& phase : profile(trace, each_node)) json[phase.name] = to_json(phase);
  json["dropped_events"] = trace.dropped();
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace atb
