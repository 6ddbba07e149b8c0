// SPDX-License-Identifier: Apache-2.0
#include "ops/plugin_util.h"

#include <dlfcn.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>

#include "core/error.h"
#include "core/join.h"
#include "ops/external_util.h"
#include "ops/plugin_context_util.h"

namespace atb {
namespace {

static_assert(static_cast<int>(DType::kF32) == ATB_F32 && static_cast<int>(DType::kF64) == ATB_F64 &&
              static_cast<int>(DType::kF16) == ATB_F16 && static_cast<int>(DType::kBF16) == ATB_BF16 &&
              static_cast<int>(DType::kI8) == ATB_I8 && static_cast<int>(DType::kU8) == ATB_U8 &&
              static_cast<int>(DType::kI32) == ATB_I32 && static_cast<int>(DType::kI64) == ATB_I64 &&
              static_cast<int>(DType::kBool) == ATB_BOOL);

struct Plugins {
  std::mutex mutex;
  std::map<std::string, const atb_kernel*, std::less<>> kernels;
};

Plugins& plugins() {
  static Plugins& all = *new Plugins;  // never destroyed: graphs may run while the process ends
  return all;
}

// Operands of a call as a plugin sees them.
class PluginCall {
 public:
  PluginCall(std::span<const TensorView> inputs, std::span<const TensorView> outputs,
             const atb_context* context = nullptr) {
    tensors_.reserve(inputs.size() + outputs.size());
    for (const TensorView& view : inputs) add(view);
    for (const TensorView& view : outputs) add(view);
    call_ = {static_cast<int32_t>(inputs.size()), static_cast<int32_t>(outputs.size()), tensors_.data(),
             tensors_.data() + inputs.size(), context};
  }
  PluginCall(const PluginCall&) = delete;
  PluginCall& operator=(const PluginCall&) = delete;
  const atb_call* get() const { return &call_; }

 private:
  void add(const TensorView& view) {
    tensors_.push_back({view.data, static_cast<int32_t>(view.dtype), view.rank, view.shape.data(), view.stride.data()});
  }

  std::vector<atb_tensor> tensors_;
  atb_call call_{};
};

TensorView view_of_type(const Value& value) {
  std::vector<int64_t> shape;
  for (const Dim& extent : value.shape()) shape.push_back(extent.is_constant() ? extent.constant() : -1);
  return TensorView::dense(nullptr, value.type().dtype, shape);
}

void check_types(const Node& node, const atb_kernel& kernel) {
  if (kernel.supports == nullptr) return;
  std::vector<TensorView> inputs, outputs;
  for (size_t i = 0; i < PluginContext(node).operands(); ++i) inputs.push_back(view_of_type(*node.input(i)));
  for (const Value* output : node.outputs()) outputs.push_back(view_of_type(*output));
  const char* reason = kernel.supports(PluginCall(inputs, outputs).get());
  require(reason == nullptr, Code::kUnsupported, "[external] ", describe_external(node), ": kernel ", kernel.name,
          " does not take it: ", reason == nullptr ? "" : reason);
}

// With a context, phase 0 writes its numbers to the scratch, and phase 1 is the kernel's.
class PluginKernel final : public Kernel {
 public:
  PluginKernel(const Node& node, const atb_kernel& kernel) : kernel_(kernel), context_(node) {
    for (size_t i = 0; i < context_.operands(); ++i) {
      const Value* input = node.input(i);
      constants_.push_back(input->is_constant() ? dense_bytes(input->constant()) : nullptr);
    }
  }

  int phases() const override { return context_.exists() ? 2 : 1; }

  int64_t units(const Call& call, int phase) const noexcept override {
    if (kernel_.units == nullptr || phase + 1 < phases()) return 1;
    return guarded(call, nullptr, [&](const atb_call* seen) { return std::max<int64_t>(kernel_.units(seen), 1); });
  }

  double cost(const Call& call, int phase) const noexcept override {
    if (phase + 1 < phases()) return PluginContext::cost(call);
    double elements = 0;
    for (const TensorView& view : call.inputs) elements += static_cast<double>(view.size());
    for (const TensorView& view : call.outputs) elements += static_cast<double>(view.size());
    return 16 * elements;
  }

  size_t scratch_bytes(const Call& largest) const override {
    return context_.exists() ? PluginContext::bytes(largest) : 0;
  }

  bool takes_any_strides() const override { return true; }

  void run(const Call& call, int phase, int64_t begin, int64_t end, std::byte*) const noexcept override {
    bool right = true;
    if (phase + 1 < phases()) {
      right = context_.fill(call);
    } else {
      const atb_context context = context_.exists() ? context_.of(call) : atb_context{};
      const atb_context* given = context_.exists() ? &context : nullptr;
      right = guarded(call, given, [&](const atb_call* seen) { return kernel_.run(seen, begin, end); }) == 0;
    }
    if (!right && call.fault != nullptr) call.fault->store(true);
  }

  std::string variant(const Call&) const override { return std::string(kernel_.name) + "/plugin"; }

 private:
  // Code from outside that throws, or no memory for the operands, ends the call and not the process. Returns 1 then.
  template <class Body>
  int64_t guarded(const Call& call, const atb_context* context, Body body) const noexcept {
    try {
      const std::span<const TensorView> own = call.inputs.first(context_.operands());
      std::vector<TensorView> inputs(own.begin(), own.end());
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (constants_[i] != nullptr) inputs[i].data = const_cast<std::byte*>(constants_[i].get());
        if (inputs[i].data == nullptr && inputs[i].size() != 0) return 1;  // a view of an encoded constant
      }
      return body(PluginCall(inputs, call.outputs, context).get());
    } catch (...) {
      if (call.fault != nullptr) call.fault->store(true);
      return 1;
    }
  }

  const atb_kernel& kernel_;
  const PluginContext context_;
  std::vector<std::shared_ptr<const std::byte>> constants_;
};

}  // namespace

std::vector<std::string> add_plugin(const atb_plugin& plugin, const std::string& where) {
  require(plugin.abi >= ATB_PLUGIN_ABI_OLDEST && plugin.abi <= ATB_PLUGIN_ABI, Code::kInvalidArgument, "[plugin] ",
          where, " is made for version ", plugin.abi, " of the interface, this build takes ", ATB_PLUGIN_ABI_OLDEST,
          " to ", ATB_PLUGIN_ABI, ": compile it again with this build's atb/plugin.h");
  require(plugin.num_kernels > 0 && plugin.kernels != nullptr, Code::kInvalidArgument, "[plugin] ", where,
          " has no kernels");
  const std::lock_guard lock(plugins().mutex);
  std::vector<std::string> names;
  for (int32_t i = 0; i < plugin.num_kernels; ++i) {
    const atb_kernel& kernel = plugin.kernels[i];
    require(kernel.name != nullptr && kernel.run != nullptr, Code::kInvalidArgument, "[plugin] ", where, ": kernel ", i,
            " has no name or no run function");
    const auto known = plugins().kernels.find(kernel.name);
    require(known == plugins().kernels.end() || known->second == &kernel, Code::kInvalidArgument, "[plugin] ", where,
            ": another library has a kernel ", kernel.name, " already");
    names.emplace_back(kernel.name);
  }
  for (int32_t i = 0; i < plugin.num_kernels; ++i)
    plugins().kernels.emplace(plugin.kernels[i].name, &plugin.kernels[i]);
  return names;
}

std::vector<std::string> load_library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    throw_error(Code::kNotFound, "[plugin] ", path, " cannot be loaded: ", reason == nullptr ? "unknown" : reason);
  }
  using Describe = const atb_plugin* (*)();
  const auto describe = reinterpret_cast<Describe>(dlsym(library, "atb_plugin_describe"));
  require(describe != nullptr, Code::kInvalidArgument, "[plugin] ", path,
          " has no function atb_plugin_describe; see atb/plugin.h");
  const atb_plugin* plugin = describe();
  require(plugin != nullptr, Code::kInvalidArgument, "[plugin] ", path, ": atb_plugin_describe gives nothing");
  return add_plugin(*plugin, path);
}

namespace {

// The kernel whose name ends so; empty where there is none.
std::string ending_in(const std::string& ending, const std::vector<std::string>& names) {
  std::vector<std::string> found;
  std::copy_if(names.begin(), names.end(), std::back_inserter(found),
               [&](const std::string& name) { return name.ends_with(ending); });
  require(found.size() <= 1, Code::kInvalidArgument, "[plugin] kernels ", join(found), " all end in ", ending,
          "; say which is ", ending, "=");
  return found.empty() ? std::string() : found[0];
}

}  // namespace

PluginLibrary load_block_plugin(const std::string& path, const std::string& preprocess,
                                const std::string& postprocess) {
  const std::vector<std::string> names = load_library(path);
  for (const std::string& name : {preprocess, postprocess}) {
    const bool known = name.empty() || std::find(names.begin(), names.end(), name) != names.end();
    require(known, Code::kInvalidArgument, "[plugin] ", path, " has no kernel '", name, "'; it has ", join(names));
  }
  const bool named = !preprocess.empty() || !postprocess.empty();
  const std::string before = named ? preprocess : ending_in("preprocess", names);
  const std::string after = named ? postprocess : ending_in("postprocess", names);
  if (!before.empty() || !after.empty()) return {{before, after}, {"", after}};
  require(names.size() == 1, Code::kInvalidArgument, "[plugin] ", path, " has the kernels ", join(names),
          "; say which is preprocess= and which postprocess=");
  return {{names[0], ""}, {"", names[0]}};
}

const atb_kernel* find_plugin(const Node& external) {
  const std::string& kernel = kernel_name(external);
  const std::lock_guard lock(plugins().mutex);
  const auto it = plugins().kernels.find(kernel.empty() ? external.attrs().text("target") : kernel);
  return it == plugins().kernels.end() ? nullptr : it->second;
}

std::unique_ptr<Kernel> make_plugin_kernel(const KernelRequest& request) {
  const atb_kernel* kernel = find_plugin(request.node);
  if (kernel == nullptr) return nullptr;
  check_types(request.node, *kernel);
  return std::make_unique<PluginKernel>(request.node, *kernel);
}

}  // namespace atb
