// SPDX-License-Identifier: Apache-2.0
// Finding operands among what a sketch offers, or making them.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "fuzz/random_graphs/sketch.h"

namespace atb::random_graphs {

// Small enough to be computed many times.
bool fits(const Sketch& sketch, const Shape& shape);

bool is_f32(const Value& value);
bool has_features(const Value& value);  // f32 with a last axis of constant extent
// numpy broadcasting, where it is proven.
bool broadcasts(const Shape& a, const Shape& b);

// Offered values that `reader` may read and `accepts` takes.
std::vector<Value*> offered_where(Sketch& sketch, std::string_view reader,
                                  const std::function<bool(const Value&)>& accepts);
Value* pick_or_null(Sketch& sketch, const std::vector<Value*>& values);
// An offered f32 value, or a new input if there is none.
Value* any_float(Sketch& sketch, std::string_view reader = "");
// Some axes at the end of `like`, constant extents kept or 1.
std::vector<int64_t> trailing_shape(Sketch& sketch, const Value& like);
// Something that broadcasts with x: another value, an input (now and then of half precision), or a constant of this
// mean.
Value* partner(Sketch& sketch, const Value& x, double mean);

}  // namespace atb::random_graphs
