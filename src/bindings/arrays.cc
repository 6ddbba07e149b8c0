// SPDX-License-Identifier: Apache-2.0
#include "bindings/arrays.h"

#include <array>
#include <optional>
#include <utility>

#include "core/error.h"

namespace atb {
namespace {

namespace nb = nanobind;
using Code8 = nb::dlpack::dtype_code;

constexpr std::pair<DType, nb::dlpack::dtype> kDTypes[] = {
    {DType::kF32, {static_cast<uint8_t>(Code8::Float), 32, 1}},
    {DType::kF64, {static_cast<uint8_t>(Code8::Float), 64, 1}},
    {DType::kF16, {static_cast<uint8_t>(Code8::Float), 16, 1}},
    {DType::kBF16, {static_cast<uint8_t>(Code8::Bfloat), 16, 1}},
    {DType::kI8, {static_cast<uint8_t>(Code8::Int), 8, 1}},
    {DType::kU8, {static_cast<uint8_t>(Code8::UInt), 8, 1}},
    {DType::kI32, {static_cast<uint8_t>(Code8::Int), 32, 1}},
    {DType::kI64, {static_cast<uint8_t>(Code8::Int), 64, 1}},
    {DType::kBool, {static_cast<uint8_t>(Code8::Bool), 8, 1}},
};

std::string name_of(nb::dlpack::dtype dtype) {
  static constexpr const char* kKinds[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  const std::string kind =
      dtype.code < std::size(kKinds) ? kKinds[dtype.code] : "DLPack code " + std::to_string(dtype.code) + " x ";
  return kind + std::to_string(dtype.bits) + (dtype.lanes == 1 ? "" : " x " + std::to_string(dtype.lanes));
}

// "ndarray of dtype datetime64[s]", "list".
std::string python_type(nb::handle object) {
  const std::string name = nb::type_name(object.type()).c_str();
  if (!nb::hasattr(object, "dtype")) return name;
  const nb::object dtype = object.attr("dtype");
  return name + " of dtype " + nb::str(nb::handle(dtype)).c_str();
}

// Memory that the CPU can read: its own and pinned host memory.
bool is_host(int device_type) {
  return device_type == nb::device::cpu::value || device_type == nb::device::cuda_host::value;
}

std::string device_name(int type) {
  if (type == nb::device::cuda::value) return "CUDA";
  if (type == nb::device::rocm::value) return "ROCm";
  if (type == nb::device::metal::value) return "Metal";
  return "DLPack type " + std::to_string(type);
}

void require_host(int device_type, const std::string& what) {
  require(is_host(device_type), Code::kUnsupported, what, ": is on a ", device_name(device_type),
          " device; ATB reads arrays of the CPU: move it there first, as with .cpu()");
}

// Asks before anything is exported: an array elsewhere may not export at all without its runtime.
void check_device(nb::handle object, const std::string& what) {
  if (!nb::hasattr(object, "__dlpack_device__")) return;
  int type = 0;
  try {
    type = nb::cast<int>(nb::object(object.attr("__dlpack_device__")())[0]);
  } catch (const nb::cast_error&) {
    throw_error(Code::kInvalidArgument, what, ": __dlpack_device__ of a ", python_type(object),
                " gives no pair of small integers");
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C is no property of the array
    throw_error(Code::kUnsupported, what, ": a ", python_type(object),
                " on a device that DLPack does not know; ATB reads ", "arrays of the CPU");
  }
  require_host(type, what);
}

void check_gradients(nb::handle object, const std::string& what) {
  const bool required = nb::hasattr(object, "requires_grad") && nb::cast<bool>(nb::bool_(object.attr("requires_grad")));
  require(!required, Code::kUnsupported, what, ": requires gradients, which ATB does not compute; pass .detach()");
}

}  // namespace

nb::dlpack::dtype dlpack_dtype(DType dtype) {
  for (const auto& [ours, theirs] : kDTypes) {
    if (ours == dtype) return theirs;
  }
  throw_error(Code::kUnsupported, "[tensor] ", dtype_name(dtype), " has no DLPack type");
}

BorrowedArray borrow_array(nb::handle object, const std::string& what, bool constant) {
  check_device(object, what);
  if (!constant) check_gradients(object, what);
  BorrowedArray result;
  // Some buffers (ctypes) come without strides; a memoryview of them has them.
  nb::object viewed;
  if (!nb::hasattr(object, "__dlpack__") && PyObject_CheckBuffer(object.ptr()) != 0) {
    viewed = nb::steal(PyMemoryView_FromObject(object.ptr()));
    if (!viewed.is_valid()) throw nb::python_error();
  }
  if (!nb::try_cast(viewed.is_valid() ? viewed : nb::borrow(object), result.array, false) || !result.array.is_valid()) {
    throw_error(Code::kInvalidArgument, what, ": a ", python_type(object),
                " gives no array of numbers; pass an object with __dlpack__ or the buffer protocol");
  }
  const auto& array = result.array;
  require_host(array.device_type(), what);
  require(array.ndim() <= static_cast<size_t>(kMaxRank), Code::kUnsupported, what, ": ", array.ndim(),
          " axes, at most ", kMaxRank, " are possible");
  TensorView& view = result.view;
  view.data = const_cast<std::byte*>(static_cast<const std::byte*>(array.data()));
  view.rank = static_cast<int>(array.ndim());
  for (size_t axis = 0; axis < array.ndim(); ++axis) {
    view.shape[axis] = static_cast<int64_t>(array.shape(axis));
    view.stride[axis] = array.stride(axis);
  }
  for (const auto& [ours, theirs] : kDTypes) {
    if (theirs != array.dtype()) continue;
    view.dtype = ours;
    return result;
  }
  throw_error(Code::kUnsupported, what, ": dtype ", name_of(array.dtype()),
              "; supported are f32, f64, f16, bf16, i8, u8, i32, i64, bool");
}

ConstantRef constant_from_array(const std::string& name, nb::handle object) {
  const std::string what = "[graph] constant " + name;
  auto borrowed = std::make_unique<BorrowedArray>(borrow_array(object, what, true));
  const TensorView view = borrowed->view;
  require(view.contiguous(), Code::kInvalidArgument, what,
          ": is strided; pass a dense row-major array, as of .contiguous()");
  require(reinterpret_cast<uintptr_t>(view.data) % dtype_size(view.dtype) == 0, Code::kInvalidArgument, what,
          ": is not aligned to its elements; pass a copy");
  auto storage = std::make_shared<Storage>();
  storage->bytes = {view.data, static_cast<size_t>(view.size()) * dtype_size(view.dtype)};
  storage->owner = std::shared_ptr<const void>(borrowed.release(), [](const BorrowedArray* held) {
    if (Py_IsInitialized() == 0) return;  // the interpreter has gone, and the array with it
    const nb::gil_scoped_acquire acquire;
    delete held;
  });
  return Constant::from_storage(name, view.dtype, nullptr, {view.shape.begin(), view.shape.begin() + view.rank},
                                storage, 0);
}

}  // namespace atb
