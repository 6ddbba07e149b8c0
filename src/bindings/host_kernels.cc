// SPDX-License-Identifier: Apache-2.0
#include "bindings/host_kernels.h"

#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/tensor.h"
#include "core/error.h"

namespace atb {
namespace {

namespace nb = nanobind;

std::string text_of(const TensorView& view) {
  return Type{view.dtype, Shape(view.shape.begin(), view.shape.begin() + view.rank)}.str();
}

// Checks one result, and copies it to its place.
void take_output(nb::handle result, const TensorView& wanted, const std::string& what) {
  const BorrowedArray array = borrow_array(result, what);
  const std::span<const int64_t> given(array.view.shape.data(), static_cast<size_t>(array.view.rank));
  const std::span<const int64_t> shape(wanted.shape.data(), static_cast<size_t>(wanted.rank));
  require(array.view.dtype == wanted.dtype && std::equal(given.begin(), given.end(), shape.begin(), shape.end()),
          Code::kInvalidArgument, what, ": is ", text_of(array.view), ", expected ", text_of(wanted));
  copy_dense(array.view, wanted.data);
}

void call_kernel(nb::handle callable, const HostCall& call) {
  const nb::gil_scoped_acquire acquire;
  const std::string what = "[kernel] " + call.node.attrs().text("target") + " (" + call.node.name() + ")";
  nb::list arguments;
  for (const TensorView& view : call.inputs) arguments.append(nb::cast(LentTensor{view, call.memory}));
  const nb::object result = callable(*nb::tuple(arguments));
  const bool several = nb::isinstance<nb::tuple>(result) || nb::isinstance<nb::list>(result);
  const size_t count = several ? nb::len(result) : 1;
  require(count == call.outputs.size(), Code::kInvalidArgument, what, ": gives ", count, " results, expected ",
          call.outputs.size());
  for (size_t i = 0; i < count; ++i) {
    take_output(several ? nb::object(result[i]) : result, call.outputs[i], what + ": result " + std::to_string(i));
  }
}

}  // namespace

HostKernels host_kernels_from(const nb::dict& kernels) {
  HostKernels result;
  for (const auto& [name, callable] : kernels) {
    const std::string key = nb::cast<std::string>(name);
    require(PyCallable_Check(callable.ptr()) != 0, Code::kInvalidArgument, "[kernel] ", key, ": a ",
            nb::type_name(callable.type()).c_str(), " cannot be called");
    const std::shared_ptr<nb::object> held(new nb::object(nb::borrow(callable)), [](nb::object* object) {
      if (Py_IsInitialized() == 0) return;  // the interpreter has gone, and the callable with it
      const nb::gil_scoped_acquire acquire;
      delete object;
    });
    result[key] = [held](const HostCall& call) { call_kernel(*held, call); };
  }
  return result;
}

}  // namespace atb
