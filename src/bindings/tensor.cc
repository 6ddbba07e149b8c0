// SPDX-License-Identifier: Apache-2.0
#include "bindings/tensor.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <string>
#include <vector>

#include "api/compiled_graph.h"
#include "bindings/arrays.h"
#include "core/constant.h"

namespace atb {
namespace {

namespace nb = nanobind;

// An object of nanobind's own that exports the memory of `self` and keeps it alive.
nb::object exporter(nb::handle self) {
  const Tensor& tensor = nb::cast<const Tensor&>(self);
  const std::vector<size_t> shape(tensor.shape.begin(), tensor.shape.end());
  return nb::cast(nb::ndarray<nb::array_api>(tensor.data.get(), shape.size(), shape.data(), self, nullptr,
                                             dlpack_dtype(tensor.dtype), nb::device::cpu::value));
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
  view->obj = nullptr;
  try {
    if (nb::cast<const Tensor&>(nb::handle(self)).dtype == DType::kBF16) {
      PyErr_SetString(PyExc_BufferError,
                      "[tensor] bf16 has no buffer format; import it by DLPack, as torch.from_dlpack");
      return -1;
    }
    return PyObject_GetBuffer(exporter(self).ptr(), view, flags);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_BufferError, error.what());
    return -1;
  }
}

PyType_Slot kSlots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

nb::tuple shape_of(const Tensor& tensor) {
  nb::list extents;
  for (const int64_t extent : tensor.shape) extents.append(extent);
  return nb::tuple(extents);
}

std::string repr(const Tensor& tensor) {
  return "atb.Tensor(" + Type{tensor.dtype, Shape(tensor.shape.begin(), tensor.shape.end())}.str() + ")";
}

size_t num_bytes(const Tensor& tensor) { return static_cast<size_t>(tensor.view().size()) * dtype_size(tensor.dtype); }

nb::object memory_of(nb::handle tensor) {
  nb::object view = nb::steal(PyMemoryView_FromObject(tensor.ptr()));
  if (!view.is_valid()) nb::raise_python_error();
  return view;
}

// Of a memoryview, so that numpy is not needed; memoryview has no f16. bf16 is refused by get_buffer.
nb::object to_list(nb::handle self) {
  const Tensor& tensor = nb::cast<const Tensor&>(self);
  if (tensor.dtype != DType::kF16) return memory_of(self).attr("tolist")();
  Tensor wide = Tensor::allocate(DType::kF32, tensor.shape);
  decode_f32(tensor.dtype, nullptr, tensor.data.get(), wide.view().size(), reinterpret_cast<float*>(wide.data.get()));
  return memory_of(nb::cast(std::move(wide))).attr("tolist")();
}

// numpy asks for this where it was given no buffer; without it, it would wrap the object itself.
nb::object to_numpy(nb::handle self, nb::handle dtype, nb::handle copy) {
  const nb::object view = memory_of(self);
  nb::kwargs options;
  if (!dtype.is_none()) options["dtype"] = dtype;
  if (!copy.is_none()) options["copy"] = copy;
  return nb::module_::import_("numpy").attr("array")(view, **options);
}

}  // namespace

void bind_tensor(nb::module_& module) {
  nb::class_<Tensor>(module, "Tensor", nb::type_slots(kSlots),
                     "A dense, row-major array on the CPU. numpy.asarray, memoryview and torch.from_dlpack share its "
                     "memory, which lives as long as one of them does.")
      .def_prop_ro("shape", &shape_of, nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro(
          "dtype", [](const Tensor& tensor) { return std::string(dtype_name(tensor.dtype)); },
          nb::sig("def dtype(self) -> str"), "\"f32\", \"bf16\", \"i64\", ...")
      .def_prop_ro("nbytes", &num_bytes)
      .def(
          "__dlpack__",
          [](nb::handle self, const nb::kwargs& options) { return exporter(self).attr("__dlpack__")(**options); },
          nb::sig("def __dlpack__(self, **options: typing.Any) -> typing.Any"),
          "A capsule; with a version where max_version asks for 1.0 or later.")
      .def(
          "__dlpack_device__", [](const Tensor&) { return nb::make_tuple(nb::device::cpu::value, 0); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def("__array__", &to_numpy, nb::arg("dtype") = nb::none(), nb::kw_only(), nb::arg("copy") = nb::none(),
           nb::sig("def __array__(self, dtype: typing.Any = None, *, copy: bool | None = None) -> typing.Any"))
      .def("tolist", &to_list, nb::sig("def tolist(self) -> typing.Any"), "Nested lists of numbers.")
      .def("__repr__", &repr);
}

}  // namespace atb
