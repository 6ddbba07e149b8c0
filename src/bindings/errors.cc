// SPDX-License-Identifier: Apache-2.0
#include "bindings/errors.h"

#include <array>
#include <string>
#include <string_view>

#include "core/error.h"

namespace atb {
namespace {

namespace nb = nanobind;

// One class a code, in the order of Code; each also derives from the built-in exception of the same meaning.
std::array<PyObject*, 8>& classes() {
  static std::array<PyObject*, 8> all{};
  return all;
}

PyObject* make_class(nb::module_& module, const char* name, PyObject* base, PyObject* builtin) {
  const nb::object bases =
      builtin == nullptr ? nb::steal(PyTuple_Pack(1, base)) : nb::steal(PyTuple_Pack(2, base, builtin));
  PyObject* type = PyErr_NewException((std::string("atb._core.") + name).c_str(), bases.ptr(), nullptr);
  module.attr(name) = nb::borrow(type);
  return type;  // lives as long as the process
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    // Names from files may be no UTF-8.
    const std::string_view text = error.what();
    const nb::object message =
        nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
    PyErr_SetObject(classes()[static_cast<size_t>(error.code())], message.ptr());
  }
}

}  // namespace

void bind_errors(nb::module_& module) {
  PyObject* base = make_class(module, "Error", PyExc_RuntimeError, nullptr);
  classes() = {
      make_class(module, "InvalidArgument", base, PyExc_ValueError),
      make_class(module, "NotFound", base, PyExc_LookupError),
      make_class(module, "DataLoss", base, nullptr),
      make_class(module, "Unsupported", base, PyExc_NotImplementedError),
      make_class(module, "ResourceExhausted", base, PyExc_MemoryError),
      make_class(module, "Cancelled", base, nullptr),
      make_class(module, "FailedPrecondition", base, nullptr),
      make_class(module, "Internal", base, nullptr),
  };
  nb::register_exception_translator(translate);
}

}  // namespace atb
