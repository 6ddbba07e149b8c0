// SPDX-License-Identifier: Apache-2.0
// Reads constants; stops at the first element that fits no form.
#include "passes/analysis/constant_form.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "passes/analysis/choice.h"

namespace atb {
namespace {

constexpr int64_t kMaxLength = 4096;

template <class T>
double element_of(const std::byte* row, int64_t index) {
  T value;
  std::memcpy(&value, row + static_cast<size_t>(index) * sizeof(T), sizeof value);
  return static_cast<double>(value);
}

// Rows of plain elements; all their bits, which f32 would round.
class Rows {
 public:
  explicit Rows(const Constant& constant) : constant_(constant), decoded_(static_cast<size_t>(constant.row_elems())) {}

  void select(int64_t row) {
    bytes_ = constant_.row(row);
    if (!wide()) constant_.decode_row(row, decoded_.data());
  }
  double at(int64_t index) const {
    if (constant_.dtype() == DType::kF64) return element_of<double>(bytes_, index);
    if (constant_.dtype() == DType::kI32) return element_of<int32_t>(bytes_, index);
    if (constant_.dtype() == DType::kI64) return element_of<int64_t>(bytes_, index);
    return decoded_[static_cast<size_t>(index)];
  }

 private:
  bool wide() const { return dtype_size(constant_.dtype()) == 8 || constant_.dtype() == DType::kI32; }

  const Constant& constant_;
  std::vector<float> decoded_;
  const std::byte* bytes_ = nullptr;
};

// Integers of one axis that go up in equal steps.
std::optional<Form> progression(const Constant& constant, size_t axis) {
  const int64_t length = constant.shape()[axis];
  const size_t rank = constant.shape().size();
  Rows rows(constant);
  const auto element = [&](int64_t i) {
    const bool along_row = axis + 1 == rank;
    rows.select(along_row ? 0 : i);
    return rows.at(along_row ? i : 0);
  };
  Affine result = constant_form(rank, element(0));
  result.coefficients[axis] = element(1) - element(0);
  if (!result.integral()) return std::nullopt;
  for (int64_t i = 2; i < length; ++i) {
    if (element(i) != result.offset + static_cast<double>(i) * result.coefficients[axis]) return std::nullopt;
  }
  return result;
}

// The number of each diagonal q - k, from 1 - size on; nothing where one has several.
std::optional<std::vector<double>> diagonals(const Constant& constant) {
  const int64_t size = constant.shape().back();
  std::vector<double> result(static_cast<size_t>(2 * size - 1));
  Rows rows(constant);
  std::vector<double> numbers;  // that there are
  for (int64_t q = 0; q < size; ++q) {
    rows.select(q);
    for (int64_t k = 0; k < size; ++k) {
      const double number = rows.at(k);
      double& diagonal = result[static_cast<size_t>(q - k + size - 1)];
      if (q == 0 || k == 0) {
        if (std::isnan(number)) return std::nullopt;
        if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) numbers.push_back(number);
        if (numbers.size() > 2) return std::nullopt;
        diagonal = number;
      } else if (number != diagonal) {
        return std::nullopt;
      }
    }
  }
  return result;
}

std::optional<Form> band(const Constant& constant) {
  const std::optional<std::vector<double>> numbers = diagonals(constant);
  if (!numbers) return std::nullopt;
  const size_t rank = constant.shape().size();
  const auto size = static_cast<double>(constant.shape().back());
  const auto begin = numbers->begin(), end = numbers->end();
  const auto differs_from = [](double number) { return [number](double other) { return other != number; }; };
  // From the first corner to `first`, from there to `second`, from there to the other corner, which is as the first.
  const auto first = std::find_if(begin, end, differs_from(*begin));
  const auto second = first == end ? end : std::find_if(first, end, differs_from(*first));
  if (std::find_if(second, end, differs_from(*begin)) != end) return std::nullopt;
  if (first == end) return constant_form(rank, *begin);
  const Affine q_minus_k = combine(index_form(rank, rank - 2), index_form(rank, rank - 1), -1, rank);
  Choice result{.holds = everywhere(rank), .yes = *first, .no = *begin};
  Affine low = scaled(q_minus_k, -1);  // low <= q - k
  low.offset = static_cast<double>(first - begin) - (size - 1);
  result.holds.at_most_zero.push_back(low);
  if (second != end) {  // q - k < high
    Affine high = q_minus_k;
    high.offset = 1 - (static_cast<double>(second - begin) - (size - 1));
    result.holds.at_most_zero.push_back(high);
  }
  return made(std::move(result));
}

}  // namespace

std::optional<Form> form_of(const Constant& constant) {
  if (constant.absent() || constant.encoding() != nullptr) return std::nullopt;
  const std::vector<int64_t>& shape = constant.shape();
  const size_t rank = shape.size();
  std::vector<size_t> axes;  // of more than one index
  for (size_t axis = 0; axis < rank; ++axis) {
    if (shape[axis] == 0 || shape[axis] > kMaxLength) return std::nullopt;
    if (shape[axis] != 1) axes.push_back(axis);
  }
  if (axes.empty()) {
    Rows rows(constant);
    rows.select(0);
    return constant_form(rank, rows.at(0));
  }
  const bool integers = constant.dtype() == DType::kI32 || constant.dtype() == DType::kI64;
  if (axes.size() == 1 && integers) return progression(constant, axes[0]);
  const bool square =
      axes.size() == 2 && axes[0] + 2 == rank && axes[1] + 1 == rank && shape[axes[0]] == shape[axes[1]];
  return square ? band(constant) : std::nullopt;
}

}  // namespace atb
