// SPDX-License-Identifier: Apache-2.0
// Symbolic evaluation: every value is an affine form of its own axis indices, a set of inequalities on such forms, or a
// mask that is 0 where a set holds and blocked elsewhere.
#include "passes/analysis/mask_predicate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <variant>
#include <vector>

namespace atb {
namespace {

// At or below this a mask value leaves no weight after softmax in any float type, as each row of the predicates above
// sees at least its own key.
constexpr double kBlocked = -1e30;

// offset + sum coefficient[a] * index[a] over the axes of the value.
struct Affine {
  std::vector<double> coefficients;
  double offset = 0;
  bool constant() const {
    return std::all_of(coefficients.begin(), coefficients.end(), [](double c) { return c == 0; });
  }
};
// Where all forms are <= 0.
struct Region {
  size_t rank = 0;
  std::vector<Affine> at_most_zero;
};
struct Mask {
  Region seen;
};
using Form = std::variant<Affine, Region, Mask>;

Affine align(const Affine& form, size_t rank) {  // numpy broadcasting: axes match from the right
  Affine result = form;
  result.coefficients.insert(result.coefficients.begin(), rank - form.coefficients.size(), 0.0);
  return result;
}

Region align(const Region& region, size_t rank) {
  Region result{.rank = rank, .at_most_zero = {}};
  for (const Affine& form : region.at_most_zero) result.at_most_zero.push_back(align(form, rank));
  return result;
}

Region both(const Region& a, const Region& b, size_t rank) {
  Region result = align(a, rank);
  for (const Affine& form : align(b, rank).at_most_zero) result.at_most_zero.push_back(form);
  return result;
}

// The complement of one inequality over integers: not (f <= 0) is 1 - f <= 0. Of several it is no conjunction.
std::optional<Region> complement(const Region& region) {
  if (region.at_most_zero.size() != 1) return std::nullopt;
  Affine form = region.at_most_zero[0];
  for (double& c : form.coefficients) c = -c;
  form.offset = 1 - form.offset;
  return Region{.rank = region.rank, .at_most_zero = {form}};
}

Region nowhere(size_t rank) {
  return {.rank = rank, .at_most_zero = {{.coefficients = std::vector<double>(rank), .offset = 1}}};
}

bool integral(const Affine& form) {
  return std::floor(form.offset) == form.offset &&
         std::all_of(form.coefficients.begin(), form.coefficients.end(), [](double c) { return std::floor(c) == c; });
}

// A mask, or a constant that is one: 0 sees everything, a blocked value nothing.
std::optional<Region> seen_by(const Form& form) {
  if (const Mask* mask = std::get_if<Mask>(&form)) return mask->seen;
  const Affine* value = std::get_if<Affine>(&form);
  if (value == nullptr || !value->constant()) return std::nullopt;
  const size_t rank = value->coefficients.size();
  if (value->offset == 0) return Region{.rank = rank, .at_most_zero = {}};
  if (value->offset <= kBlocked) return nowhere(rank);
  return std::nullopt;
}

class Evaluator {
 public:
  std::optional<Form> evaluate(const Value* value) {
    const auto known = forms_.find(value);
    if (known != forms_.end()) return known->second;
    std::optional<Form> form;
    if (++visited_ > kMaxVisited || depth_ > kMaxDepth) {
      note("too many operators");
    } else {
      ++depth_;
      form = value->is_constant() ? constant(*value) : operation(*value);
      --depth_;
    }
    if (!form)
      note((value->producer() == nullptr ? std::string("%") : value->producer()->op_name() + " %") + value->name());
    forms_.emplace(value, form);
    return form;
  }

  // The first thing that the analysis does not follow.
  const std::string& why() const { return why_; }

 private:
  static constexpr int kMaxVisited = 256;
  static constexpr int kMaxDepth = 64;

  void note(const std::string& what) {
    if (why_.empty()) why_ = what;
  }

  std::optional<Form> constant(const Value& value) {
    if (value.constant()->absent() || value.constant()->num_bytes() > 64) return std::nullopt;
    const std::vector<float> data = value.constant()->to_f32();
    if (data.size() != 1) return std::nullopt;
    return Affine{.coefficients = std::vector<double>(value.shape().size()), .offset = data[0]};
  }

  std::optional<Form> operation(const Value& value) {
    const Node* node = value.producer();
    if (node == nullptr) return std::nullopt;
    if (node->is("iota")) return Affine{.coefficients = {1.0}, .offset = 0};
    if (node->is("reshape")) return reshape(*node);
    if (node->is("transpose")) return transpose(*node);
    if (node->is("where")) return where(*node);
    if (node->is("less_equal")) return less_equal(*node);
    if (node->is("add") || node->is("sub") || node->is("mul")) return arithmetic(*node);
    return std::nullopt;
  }

  // Axis `from[i]` of the input (-1: a new unit axis) becomes axis i.
  static Form remap(const Form& form, const std::vector<int>& from) {
    const auto affine = [&](const Affine& a) {
      Affine result{.coefficients = std::vector<double>(from.size()), .offset = a.offset};
      for (size_t i = 0; i < from.size(); ++i) {
        if (from[i] >= 0) result.coefficients[i] = a.coefficients[static_cast<size_t>(from[i])];
      }
      return result;
    };
    const auto region = [&](const Region& r) {
      Region result{.rank = from.size(), .at_most_zero = {}};
      for (const Affine& a : r.at_most_zero) result.at_most_zero.push_back(affine(a));
      return result;
    };
    if (const Affine* a = std::get_if<Affine>(&form)) return affine(*a);
    if (const Region* r = std::get_if<Region>(&form)) return region(*r);
    return Mask{region(std::get<Mask>(form).seen)};
  }

  // Only reshapes that insert or drop unit axes keep indices as they are.
  std::optional<Form> reshape(const Node& node) {
    const std::optional<Form> input = evaluate(node.input(0));
    if (!input) return std::nullopt;
    const Shape& before = node.input(0)->shape();
    const Shape& after = node.output()->shape();
    std::vector<int> from(after.size(), -1);
    size_t at = 0;
    for (size_t i = 0; i < after.size(); ++i) {
      if (after[i] == Dim(1)) continue;
      while (at < before.size() && before[at] == Dim(1)) ++at;
      if (at == before.size() || !(before[at] == after[i])) return std::nullopt;
      from[i] = static_cast<int>(at++);
    }
    while (at < before.size() && before[at] == Dim(1)) ++at;
    if (at != before.size()) return std::nullopt;
    return remap(*input, from);
  }

  std::optional<Form> transpose(const Node& node) {
    const std::optional<Form> input = evaluate(node.input(0));
    if (!input) return std::nullopt;
    std::vector<int> from;
    for (int64_t axis : node.attrs().get<std::vector<int64_t>>("perm")) from.push_back(static_cast<int>(axis));
    return remap(*input, from);
  }

  std::optional<Form> less_equal(const Node& node) {
    const std::optional<Form> a = evaluate(node.input(0));
    const std::optional<Form> b = evaluate(node.input(1));
    const Affine* left = a ? std::get_if<Affine>(&*a) : nullptr;
    const Affine* right = b ? std::get_if<Affine>(&*b) : nullptr;
    if (left == nullptr || right == nullptr) return std::nullopt;
    const size_t rank = node.output()->shape().size();
    return Region{.rank = rank, .at_most_zero = {combine(*left, *right, -1, rank)}};
  }

  static Affine combine(const Affine& a, const Affine& b, double sign, size_t rank) {
    Affine result = align(a, rank);
    const Affine other = align(b, rank);
    for (size_t i = 0; i < rank; ++i) result.coefficients[i] += sign * other.coefficients[i];
    result.offset += sign * other.offset;
    return result;
  }

  // where(c, seen, blocked) and the reverse; both branches may be masks themselves.
  std::optional<Form> where(const Node& node) {
    const std::optional<Form> condition = evaluate(node.input(0));
    const std::optional<Form> yes = evaluate(node.input(1));
    const std::optional<Form> no = evaluate(node.input(2));
    if (!condition || !yes || !no || !std::holds_alternative<Region>(*condition)) return std::nullopt;
    const std::optional<Region> seen_yes = seen_by(*yes);
    const std::optional<Region> seen_no = seen_by(*no);
    if (!seen_yes || !seen_no) return std::nullopt;
    const Region& holds = std::get<Region>(*condition);
    const size_t rank = node.output()->shape().size();
    if (is_nowhere(*seen_no)) return Mask{both(holds, *seen_yes, rank)};
    const std::optional<Region> fails = complement(holds);
    if (is_nowhere(*seen_yes) && fails) return Mask{both(*fails, *seen_no, rank)};
    return std::nullopt;
  }

  static bool is_nowhere(const Region& region) {
    return region.at_most_zero.size() == 1 && region.at_most_zero[0].constant() && region.at_most_zero[0].offset > 0;
  }

  std::optional<Form> arithmetic(const Node& node) {
    const std::optional<Form> a = evaluate(node.input(0));
    const std::optional<Form> b = evaluate(node.input(1));
    if (!a || !b) return std::nullopt;
    const size_t rank = node.output()->shape().size();
    const Affine* left = std::get_if<Affine>(&*a);
    const Affine* right = std::get_if<Affine>(&*b);
    if (node.is("add") && (std::holds_alternative<Mask>(*a) || std::holds_alternative<Mask>(*b))) {
      const std::optional<Region> first = seen_by(*a);
      const std::optional<Region> second = seen_by(*b);
      if (!first || !second) return std::nullopt;
      return Mask{both(*first, *second, rank)};  // 0 + 0 sees, anything else is blocked
    }
    if (left == nullptr || right == nullptr || !std::isfinite(left->offset) || !std::isfinite(right->offset)) {
      return std::nullopt;
    }
    if (!node.is("mul")) return combine(*left, *right, node.is("sub") ? -1 : 1, rank);
    if (!right->constant()) std::swap(left, right);
    if (!right->constant()) return std::nullopt;
    Affine result = align(*left, rank);
    for (double& c : result.coefficients) c *= right->offset;
    result.offset *= right->offset;
    return result;
  }

  std::map<const Value*, std::optional<Form>> forms_;
  std::string why_;
  int visited_ = 0;
  int depth_ = 0;
};

// Keys seen by query position p: low <= p - s <= high.
struct Band {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

std::optional<Band> band_of(const Region& region) {
  Band band;
  for (const Affine& form : region.at_most_zero) {
    if (!integral(form)) return std::nullopt;
    const size_t rank = form.coefficients.size();
    const double query = rank >= 2 ? form.coefficients[rank - 2] : 0;
    const double key = rank >= 1 ? form.coefficients[rank - 1] : 0;
    for (size_t i = 0; i + 2 < rank; ++i) {
      if (form.coefficients[i] != 0) return std::nullopt;
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

MaskPredicate from_band(const Band& band) {
  if (std::isinf(band.low) && std::isinf(band.high))
    return {.kind = MaskPredicate::Kind::kFull, .window = 0, .why = {}};
  if (band.low == 0 && std::isinf(band.high)) return {.kind = MaskPredicate::Kind::kCausal, .window = 0, .why = {}};
  if (band.low == 0 && band.high >= 0) {
    return {.kind = MaskPredicate::Kind::kWindow, .window = static_cast<int64_t>(band.high) + 1, .why = {}};
  }
  return {.kind = MaskPredicate::Kind::kUnknown, .window = 0, .why = "keys other than a window up to the query"};
}

MaskPredicate unknown(std::string why) {
  return {.kind = MaskPredicate::Kind::kUnknown, .window = 0, .why = std::move(why)};
}

// Reads a constant [..., T, S] mask. The band that its entries span must be exactly what it lets through.
MaskPredicate read_constant(const Constant& mask) {
  const std::vector<int64_t>& shape = mask.shape();
  if (mask.absent() || shape.size() < 2) return unknown("constant @" + mask.name());
  const int64_t queries = shape[shape.size() - 2];
  const int64_t keys = shape[shape.size() - 1];
  if (queries != keys || queries * keys > (int64_t{1} << 22) || mask.num_rows() != queries) {
    return unknown("constant @" + mask.name());
  }
  const std::vector<float> data = mask.to_f32();
  // An entry depends on p - s alone: one verdict a diagonal. Bands that reach the corner count as open.
  std::vector<int> seen(static_cast<size_t>(2 * queries - 1), -1);  // index p - s + T - 1
  for (int64_t p = 0; p < queries; ++p) {
    for (int64_t s = 0; s < keys; ++s) {
      const float entry = data[static_cast<size_t>(p * keys + s)];
      if (entry != 0.0F && !(static_cast<double>(entry) <= kBlocked)) return unknown("values other than 0 and -inf");
      int& verdict = seen[static_cast<size_t>(p - s + queries - 1)];
      const int now = entry == 0.0F ? 1 : 0;
      if (verdict >= 0 && verdict != now) return unknown("constant @" + mask.name() + " is no band");
      verdict = now;
    }
  }
  const auto first = std::find(seen.begin(), seen.end(), 1);
  const auto last = std::find(first, seen.end(), 0);
  if (first == seen.end() || std::find(last, seen.end(), 1) != seen.end()) {
    return unknown("constant @" + mask.name() + " is no band");
  }
  Band band;
  if (first != seen.begin()) band.low = static_cast<double>(first - seen.begin()) - static_cast<double>(queries - 1);
  if (last != seen.end()) band.high = static_cast<double>(last - seen.begin()) - static_cast<double>(queries);
  return from_band(band);
}

}  // namespace

MaskPredicate analyse_mask(const Value* mask, const Dim& queries, const Dim& keys) {
  if (equal(queries, keys) != Tri::kYes) {
    return unknown("queries [" + queries.str() + "] are not the keys [" + keys.str() + "]");
  }
  if (mask->is_constant() && num_elements(mask->shape()) != Dim(1)) return read_constant(*mask->constant());
  Evaluator evaluator;
  const std::optional<Form> form = evaluator.evaluate(mask);
  if (!form) return unknown(evaluator.why());
  const std::optional<Region> seen = seen_by(*form);
  if (!seen) return unknown("%" + mask->name() + " is no mask of 0 and -inf");
  const std::optional<Band> band = band_of(*seen);
  if (!band) return unknown("%" + mask->name() + " depends on more than query minus key position");
  return from_band(*band);
}

}  // namespace atb
