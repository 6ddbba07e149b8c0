// SPDX-License-Identifier: Apache-2.0
// Normal form of GELU written by hand, in any order of its factors: x / 2 * (1 + erf(x / sqrt(2))), and
// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))). Hendrycks and Gimpel 2016, arXiv 1606.08415.
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "passes/analysis/scalar.h"
#include "passes/canonical/canonical.h"
#include "passes/canonical/chain_util.h"

namespace atb {
namespace {

// Literals come as f32, and products of them; a coefficient that is off by more is another function.
constexpr double kTolerance = 1e-6;
constexpr int kMaxDepth = 8;

// Coefficients of 1, x, x^2, x^3.
using Polynomial = std::array<double, 4>;

Polynomial operator+(const Polynomial& a, const Polynomial& b) {
  return {a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]};
}

Polynomial operator*(const Polynomial& a, double factor) {
  return {a[0] * factor, a[1] * factor, a[2] * factor, a[3] * factor};
}

// Nothing for a degree above 3.
std::optional<Polynomial> multiply(const Polynomial& a, const Polynomial& b) {
  Polynomial product{};
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < 4; ++j) {
      if (a[i] == 0 || b[j] == 0) continue;
      if (i + j > 3) return std::nullopt;
      product[i + j] += a[i] * b[j];
    }
  }
  return product;
}

bool near(const Polynomial& a, const Polynomial& b) {
  return std::equal(a.begin(), a.end(), b.begin(),
                    [](double left, double right) { return std::abs(left - right) <= kTolerance * std::abs(right); });
}

// A value as p(x) + q(x) * f, where f is the one erf or tanh of the chain.
struct Expression {
  Polynomial p{};
  Polynomial q{};
};

class Reader {
 public:
  Reader(const Value* x, const Value* f) : x_(x), f_(f) {}

  std::optional<Expression> read(const Value* value, int depth = kMaxDepth) const {
    if (value == nullptr) return std::nullopt;
    if (value == x_) return Expression{{0, 1, 0, 0}, {}};
    if (value == f_) return Expression{{}, {1, 0, 0, 0}};
    if (const std::optional<double> scalar = scalar_value(value)) return Expression{{*scalar, 0, 0, 0}, {}};
    const Node* node = value->producer();
    if (node == nullptr || depth == 0 || !(value->type() == x_->type())) return std::nullopt;
    const std::optional<Expression> a = read(node->input(0), depth - 1);
    if (!a) return std::nullopt;
    if (node->is("neg")) return Expression{a->p * -1, a->q * -1};
    if (node->inputs().size() != 2) return std::nullopt;
    const std::optional<Expression> b = read(node->input(1), depth - 1);
    return b ? combine(*node, *a, *b) : std::nullopt;
  }

 private:
  static std::optional<Expression> combine(const Node& node, const Expression& a, const Expression& b) {
    if (node.is("add")) return Expression{a.p + b.p, a.q + b.q};
    if (node.is("sub")) return Expression{a.p + b.p * -1, a.q + b.q * -1};
    if (node.is("mul")) return product(a, b);
    const bool constant = b.q == Polynomial{} && b.p == Polynomial{b.p[0]} && b.p[0] != 0;
    if (node.is("div") && constant) return Expression{a.p * (1 / b.p[0]), a.q * (1 / b.p[0])};
    return std::nullopt;
  }

  static std::optional<Expression> product(const Expression& a, const Expression& b) {
    const std::optional<Polynomial> p = multiply(a.p, b.p);
    const std::optional<Polynomial> left = multiply(a.p, b.q);
    const std::optional<Polynomial> right = multiply(a.q, b.p);
    const bool linear = a.q == Polynomial{} || b.q == Polynomial{};  // no f^2
    if (!p || !left || !right || !linear) return std::nullopt;
    return Expression{*p, *left + *right};
  }

  const Value* x_;
  const Value* f_;
};

// The erf or tanh under products and sums, near the root.
const Node* find_function(const Value* value, int depth) {
  const Node* node = value->producer();
  if (node == nullptr) return nullptr;
  if (node->is("erf") || node->is("tanh")) return node;
  if (depth == 0 || (!node->is("mul") && !node->is("add"))) return nullptr;
  for (const Value* input : node->inputs()) {
    if (const Node* found = find_function(input, depth - 1)) return found;
  }
  return nullptr;
}

// What the function's argument may be a polynomial in: the values under it.
void collect_bases(Value* value, int depth, std::vector<Value*>& bases) {
  if (value == nullptr || value->is_constant()) return;
  if (std::find(bases.begin(), bases.end(), value) == bases.end()) bases.push_back(value);
  const Node* node = value->producer();
  if (node == nullptr || depth == 0) return;
  if (!node->is("mul") && !node->is("add") && !node->is("div") && !node->is("sub")) return;
  for (Value* input : node->inputs()) collect_bases(input, depth - 1, bases);
}

bool is_gelu(const Value* root, const Node& function, const Value* x) {
  const std::optional<Expression> argument = Reader(x, nullptr).read(function.input(0));
  if (!argument) return false;
  const double slope = function.is("erf") ? std::sqrt(0.5) : std::sqrt(2 / M_PI);
  const double cubic = function.is("erf") ? 0 : slope * 0.044715;
  if (!near(argument->p, {0, slope, 0, cubic})) return false;
  const std::optional<Expression> whole = Reader(x, function.output()).read(root);
  const Polynomial half = {0, 0.5, 0, 0};
  return whole && near(whole->p, half) && near(whole->q, half);
}

}  // namespace

bool gelu_chain(const Node& node, Rewriter& rewriter) {
  const Node* function = find_function(node.output(), 3);
  if (function == nullptr) return false;
  std::vector<Value*> bases;
  collect_bases(function->input(0), 6, bases);
  for (Value* x : bases) {
    if (!(x->type() == node.output()->type()) || !is_gelu(node.output(), *function, x)) continue;
    const std::string approximate = function->is("erf") ? "none" : "tanh";
    return pass_through(node, rewriter.value("gelu", {x}, {{"approximate", approximate}}), rewriter);
  }
  return false;
}

}  // namespace atb
