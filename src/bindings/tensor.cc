// SPDX-License-Identifier: Apache-2.0
#include "bindings/tensor.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <span>
#include <string>
#include <vector>

#include "api/compiled_graph.h"
#include "bindings/arrays.h"
#include "core/constant.h"

namespace atb {
namespace {

namespace nb = nanobind;

using NumPyLike = nb::array_api;

// An object of nanobind's own that exports the memory of `self` and keeps it alive.
nb::object exporter(nb::handle self) {
  if (nb::isinstance<LentTensor>(self)) {
    const TensorView& view = nb::cast<const LentTensor&>(self).view;
    const std::vector<size_t> shape(view.shape.begin(), view.shape.begin() + view.rank);
    return nb::cast(nb::ndarray<NumPyLike, nb::ro>(view.data, shape.size(), shape.data(), self, view.stride.data(),
                                                   dlpack_dtype(view.dtype), nb::device::cpu::value));
  }
  const Tensor& tensor = nb::cast<const Tensor&>(self);
  const std::vector<size_t> shape(tensor.shape.begin(), tensor.shape.end());
  return nb::cast(nb::ndarray<NumPyLike>(tensor.data.get(), shape.size(), shape.data(), self, nullptr,
                                         dlpack_dtype(tensor.dtype), nb::device::cpu::value));
}

DType dtype_of(nb::handle self) {
  return nb::isinstance<LentTensor>(self) ? nb::cast<const LentTensor&>(self).view.dtype
                                          : nb::cast<const Tensor&>(self).dtype;
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
  view->obj = nullptr;
  try {
    if (dtype_of(self) == DType::kBF16) {
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

const TensorView& view_of(const LentTensor& tensor) { return tensor.view; }
TensorView view_of(const Tensor& tensor) { return tensor.view(); }

std::span<const int64_t> extents_of(const TensorView& view) {
  return {view.shape.data(), static_cast<size_t>(view.rank)};
}

nb::tuple shape_tuple(const TensorView& view) {
  nb::list extents;
  for (const int64_t extent : extents_of(view)) extents.append(extent);
  return nb::tuple(extents);
}

std::string type_text(const TensorView& view) {
  const std::span<const int64_t> extents = extents_of(view);
  return Type{view.dtype, Shape(extents.begin(), extents.end())}.str();
}

nb::object memory_of(nb::handle tensor) {
  nb::object view = nb::steal(PyMemoryView_FromObject(tensor.ptr()));
  if (!view.is_valid()) nb::raise_python_error();
  return view;
}

// Of a memoryview, so that numpy is not needed; memoryview has no f16. bf16 is refused by get_buffer.
nb::object to_list(nb::handle self) {
  if (dtype_of(self) != DType::kF16) return memory_of(self).attr("tolist")();
  const TensorView view =
      nb::isinstance<LentTensor>(self) ? nb::cast<const LentTensor&>(self).view : nb::cast<const Tensor&>(self).view();
  std::vector<std::byte> halves(static_cast<size_t>(view.size()) * dtype_size(view.dtype));
  copy_dense(view, halves.data());
  const std::span<const int64_t> extents = extents_of(view);
  Tensor wide = Tensor::allocate(DType::kF32, {extents.begin(), extents.end()});
  decode_f32(view.dtype, nullptr, halves.data(), view.size(), reinterpret_cast<float*>(wide.data.get()));
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

// What both classes of arrays have.
template <class Array>
void bind_array(nb::class_<Array>& array, const char* name) {
  array
      .def_prop_ro(
          "shape", [](const Array& tensor) { return shape_tuple(view_of(tensor)); },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro(
          "dtype", [](const Array& tensor) { return std::string(dtype_name(view_of(tensor).dtype)); },
          nb::sig("def dtype(self) -> str"), "\"f32\", \"bf16\", \"i64\", ...")
      .def_prop_ro("nbytes",
                   [](const Array& tensor) {
                     return static_cast<size_t>(view_of(tensor).size()) * dtype_size(view_of(tensor).dtype);
                   })
      .def(
          "__dlpack__",
          [](nb::handle self, const nb::kwargs& options) { return exporter(self).attr("__dlpack__")(**options); },
          nb::sig("def __dlpack__(self, **options: typing.Any) -> typing.Any"),
          "A capsule; with a version where max_version asks for 1.0 or later.")
      .def(
          "__dlpack_device__", [](const Array&) { return nb::make_tuple(nb::device::cpu::value, 0); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def("__array__", &to_numpy, nb::arg("dtype") = nb::none(), nb::kw_only(), nb::arg("copy") = nb::none(),
           nb::sig("def __array__(self, dtype: typing.Any = None, *, copy: bool | None = None) -> typing.Any"))
      .def("tolist", &to_list, nb::sig("def tolist(self) -> typing.Any"), "Nested lists of numbers.")
      .def("__repr__", [name](const Array& tensor) { return name + ("(" + type_text(view_of(tensor)) + ")"); });
}

}  // namespace

void bind_tensor(nb::module_& module) {
  nb::class_<Tensor> tensor(
      module, "Tensor", nb::type_slots(kSlots),
      "A dense, row-major array on the CPU. numpy.asarray, memoryview and torch.from_dlpack share its "
      "memory, which lives as long as one of them does.");
  bind_array(tensor, "atb.Tensor");
  nb::class_<LentTensor> lent(module, "LentTensor", nb::type_slots(kSlots),
                              "What a kernel in Python is lent for one call: an array of any strides, to be read only. "
                              "Its numbers are those of the call until the call ends; copy what is kept.");
  bind_array(lent, "atb.LentTensor");
}

}  // namespace atb
