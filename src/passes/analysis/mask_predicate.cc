// SPDX-License-Identifier: Apache-2.0
// Classification: the inequalities of a mask must confine query minus key position to a band, its reads must be of
// keys.
#include "passes/analysis/mask_predicate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <sstream>

#include "passes/analysis/index_forms.h"
#include "passes/analysis/packed_form.h"

namespace atb {
namespace {

using Kind = MaskPredicate::Kind;

// Keys seen by query position p: low <= p - s <= high.
struct Band {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

std::optional<Band> band_of(const std::vector<Affine>& at_most_zero) {
  Band band;
  for (const Affine& form : at_most_zero) {
    if (!form.integral()) return std::nullopt;
    const size_t rank = form.rank();
    const double query = rank >= 2 ? form.coefficients[rank - 2] : 0;
    const double key = rank >= 1 ? form.coefficients[rank - 1] : 0;
    for (size_t i = 0; i + 2 < rank; ++i) {
      if (form.depends_on(i)) return std::nullopt;
    }
    if (query != -key) return std::nullopt;
    // query * (p - s) + offset <= 0
    if (query == 0) {
      if (form.offset > 0) return std::nullopt;  // nothing is seen
    } else if (query > 0) {
      band.high = std::min(band.high, std::floor(-form.offset / query));
    } else {
      band.low = std::max(band.low, std::ceil(-form.offset / query));
    }
  }
  return band;
}

MaskPredicate unknown(std::string why) {
  MaskPredicate result;
  result.why = std::move(why);
  return result;
}

// "p + 1", "p", "p - 3"
std::string place(double distance) {
  const auto whole = static_cast<int64_t>(std::abs(distance));
  return whole == 0 ? "p" : (distance < 0 ? "p - " : "p + ") + std::to_string(whole);
}

// Why a form is no mask: the numbers that it has instead.
std::string what_else(const Form& form, const Value& mask) {
  const std::optional<Choice> choice = as_choice(form);
  if (!choice) return "%" + mask.name() + " holds more than 0 for keys that are seen and one number for the others";
  const auto [low, high] = std::minmax(choice->yes, choice->no);
  if (high == 0 && low <= kHidden) return "%" + mask.name() + " hides keys by several conditions at once";
  std::ostringstream text;  // x + 0 is not -0
  text << "%" << mask.name() << " adds " << choice->yes + 0.0 << " or " << choice->no + 0.0
       << "; a key is seen by 0 and hidden by " << kHidden << " or less";
  return text.str();
}

MaskPredicate from_band(const Band& band) {
  MaskPredicate result;
  if (std::isinf(band.low) && std::isinf(band.high)) {
    result.kind = Kind::kFull;
  } else if (band.low == 0 && std::isinf(band.high)) {
    result.kind = Kind::kCausal;
  } else if (band.low == 0 && band.high >= 0) {
    result.kind = Kind::kWindow;
    result.window = static_cast<int64_t>(band.high) + 1;
  } else {
    return unknown("a query at position p sees the keys from " + (std::isinf(band.high) ? "0" : place(-band.high)) +
                   " to " + (std::isinf(band.low) ? "the last" : place(-band.low)) + ", not up to p");
  }
  return result;
}

bool is_index(const Affine& form, size_t axis) {
  return form.offset == 0 && form.coefficients[axis] == 1 &&
         std::count_if(form.coefficients.begin(), form.coefficients.end(), [](double c) { return c != 0; }) == 1;
}

// source[batch, key] for scores of `rank` axes, of which the first is the batch and the last the keys.
std::optional<KeyPadding> padding_of(const Read& read, size_t rank, const Dim& keys) {
  const Value* source = read.source;
  if (source->rank() != 2 || rank < 2 || !(source->dim(1) == keys) || !is_index(read.at[1], rank - 1)) {
    return std::nullopt;
  }
  const bool one_batch = source->dim(0) == Dim(1);
  const bool by_batch = rank >= 3 && is_index(read.at[0], 0);
  const bool of_first = read.at[0].constant() && read.at[0].offset == 0;
  if (!by_batch && !(one_batch && of_first)) return std::nullopt;
  return KeyPadding{.present = const_cast<Value*>(source), .negated = read.negated};
}

// source[batch, query], of which the source may lack the batch, and either may have unit axes anywhere.
std::optional<Packing> packing_of(const Element& segment, const Value& mask) {
  const Value* source = segment.source;
  Packing result{.segments = const_cast<Value*>(source)};
  bool by_query = false;
  for (size_t axis = 0; axis < segment.at.size(); ++axis) {
    const Dim& extent = source->shape()[axis];
    if (extent == Dim(1)) continue;
    if (by_query) return std::nullopt;
    by_query = is_index(segment.at[axis], segment.rank - 2);
    if (by_query && extent == mask.dim(-2)) continue;
    const bool by_batch = segment.rank >= 3 && is_index(segment.at[axis], 0) && extent == mask.dim(0);
    if (by_query || !by_batch || !(result.batch == Dim(1))) return std::nullopt;
    result.batch = extent;
  }
  return by_query ? std::optional(result) : std::nullopt;
}

}  // namespace

MaskPredicate analyse_mask(const Value* mask, const Dim& queries, const Dim& keys) {
  if (equal(queries, keys) != Tri::kYes) {
    return unknown("queries [" + queries.str() + "] are not the keys [" + keys.str() + "]");
  }
  IndexForms forms;
  const std::optional<Form> form = forms.evaluate(mask);
  if (!form) return unknown(forms.why());
  const std::optional<Mask> seen = as_mask(*form);
  if (!seen) return unknown(what_else(*form, *mask));
  if (seen->seen.never()) return unknown("%" + mask->name() + " hides every key");
  const std::optional<PackedForm> packed = packed_form(seen->seen, forms);
  if (!packed) return unknown("%" + mask->name() + " compares what numbers no packed sequences");
  const std::optional<Band> band = band_of(packed->at_most_zero);
  if (!band) return unknown("%" + mask->name() + " depends on more than query minus key position");
  MaskPredicate result = from_band(*band);
  result.infinite = seen->infinite();
  for (const Read& read : seen->seen.reads) {
    const std::optional<KeyPadding> padding = padding_of(read, static_cast<size_t>(mask->rank()), keys);
    if (!padding) return unknown("%" + read.source->name() + " is read by more than batch and key position");
    result.padding.push_back(*padding);
  }
  for (const Element& segment : packed->segments) {
    const std::optional<Packing> packing = packing_of(segment, *mask);
    if (!packing) return unknown("%" + segment.source->name() + " is read by more than batch and position");
    result.packing.push_back(*packing);
  }
  return result;
}

bool MaskPredicate::by_batch() const {
  return !padding.empty() ||
         std::any_of(packing.begin(), packing.end(), [](const Packing& one) { return !(one.batch == Dim(1)); });
}

std::string why_not_cached(const Value* mask) {
  const std::string what = "its mask is not causality and a window alone";
  if (mask->rank() < 2) return what;
  const MaskPredicate seen = analyse_mask(mask, mask->dim(-1), mask->dim(-1));
  if (seen.kind == MaskPredicate::Kind::kUnknown) return what + ": " + seen.why;
  if (!seen.packing.empty()) {
    return "its mask keeps packed sequences apart (%" + seen.packing[0].segments->name() +
           "); a row of a cache is one sequence, so give each a row of its own";
  }
  if (seen.padding.empty()) return what;
  return what + ": it also reads %" + seen.padding[0].present->name() + ", which is no attention_mask of the model";
}

}  // namespace atb
