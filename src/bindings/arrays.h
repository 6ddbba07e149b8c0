// SPDX-License-Identifier: Apache-2.0
// Arrays that come in from Python: DLPack (with or without version) or the buffer protocol, never copied.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <string>

#include "core/constant.h"
#include "core/tensor.h"

namespace atb {

// The array that Python lends, and ATB's view of it. Made and destroyed under the GIL.
struct BorrowedArray {
  nanobind::ndarray<nanobind::ro> array;
  TensorView view;
};

// Reads any object with __dlpack__ or a buffer. `what` names it in errors ("[graph] input x"). kInvalidArgument for
// another object, kUnsupported for memory that is not the CPU's, for a dtype or a rank that ATB does not have, and for
// a torch tensor that requires gradients, unless it is a constant.
BorrowedArray borrow_array(nanobind::handle object, const std::string& what, bool constant = false);

// A constant on the array's own memory, which stays alive as long as the constant. kInvalidArgument unless the array is
// dense, row-major and aligned to its elements. It must not be changed afterwards.
ConstantRef constant_from_array(const std::string& name, nanobind::handle object);

// DLPack's code of a dtype.
nanobind::dlpack::dtype dlpack_dtype(DType dtype);

}  // namespace atb
