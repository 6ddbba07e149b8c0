// SPDX-License-Identifier: Apache-2.0
// embedding: gathers rows of a table, straight from the table's stored form.
#include <algorithm>

#include "ir/kernel.h"
#include "ops/infer_util.h"
#include "ops/reference_util.h"

namespace atb {
namespace {

std::vector<Type> infer_embedding(const InferArgs& args) {
  require_integer(args, 0);
  require_float(args, 1);
  require_rank(args, 1, 2);
  Shape shape = args.type(0).shape;
  shape.push_back(args.type(1).shape[1]);
  return {{args.type(1).dtype, std::move(shape)}};
}

// Ids, the rows gathered as they are stored, and the result.
Dim embedding_bytes(const Node& node) {
  const Type& table = node.input(1)->type();
  const Dim ids = num_elements(node.input(0)->shape());
  const Dim width = table.shape[1];
  const Dim row = table.encoding == nullptr
                      ? width * Dim(static_cast<int64_t>(dtype_size(table.dtype)))
                      : Dim::floordiv(width, Dim(table.encoding->block_elems)) * Dim(table.encoding->block_bytes);
  const Dim id_bytes(static_cast<int64_t>(dtype_size(node.input(0)->type().dtype)));
  return ids * (id_bytes + row + width * Dim(static_cast<int64_t>(dtype_size(table.dtype))));
}

template <class T>
void embedding_reference(RefCall<T>& call) {
  const RefTensor<T>& table = *call.inputs[1];
  const int64_t rows = table.shape[0];
  const int64_t width = table.shape[1];
  T* out = call.outputs[0]->f.data();
  for (const int64_t id : call.inputs[0]->i) {
    require(id >= 0 && id < rows, Code::kInvalidArgument, "[embedding] ", call.node.name(), ": id ", id, " of ", rows);
    out = std::copy_n(table.f.data() + id * width, width, out);
  }
}

// One unit an id. An id outside the table, which callers refuse beforehand, gives a row of zeros.
class EmbeddingKernel final : public Kernel {
 public:
  explicit EmbeddingKernel(ConstantRef table) : table_(std::move(table)) {}

  int64_t units(const Call& call, int /*phase*/) const noexcept override { return call.inputs[0].size(); }
  double cost(const Call& call, int /*phase*/) const noexcept override {
    return static_cast<double>(call.outputs[0].size()) * 8;
  }
  void run(const Call& call, int /*phase*/, int64_t begin, int64_t end,
           std::byte* /*scratch*/) const noexcept override {
    const TensorView& ids = call.inputs[0];
    const TensorView& out = call.outputs[0];
    const int64_t width = table_->row_elems();
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = leading_offset(ids, ids.rank, i);
      const int64_t id = ids.dtype == DType::kI64 ? ids.as<const int64_t>()[at] : ids.as<const int32_t>()[at];
      float* row = out.as<float>() + leading_offset(out, out.rank - 1, i);
      if (id >= 0 && id < table_->num_rows()) {
        table_->decode_row(id, row);
      } else {
        std::fill_n(row, width, 0.0f);
        if (call.fault != nullptr) call.fault->store(true, std::memory_order_relaxed);
      }
    }
  }
  std::string variant(const Call& /*call*/) const override {
    const Encoding* encoding = table_->encoding();
    return "embedding_" + (encoding != nullptr ? encoding->name : std::string(dtype_name(table_->dtype())));
  }

 private:
  ConstantRef table_;
};

}  // namespace

void register_op_embedding(OpRegistry& registry) {
  OpDef op;
  op.name = "embedding";
  op.doc = "out[..., h] = table[ids[...], h]; ids must lie in [0, V). Only the gathered rows count as bytes read.";
  op.inputs = {{"ids"}, {"table"}};
  op.infer = infer_embedding;
  op.bytes = embedding_bytes;
  op.reference = reference_kernel([](auto& call) { embedding_reference(call); });
  op.make_cpu_kernel = [](const KernelRequest& request) -> std::unique_ptr<Kernel> {
    const Value* table = request.node.input(1);
    // The kernel writes f32: a table of halves whose rows shall be f32 is encoded, not of a half dtype.
    if (!table->is_constant() || table->type().dtype != DType::kF32) return nullptr;
    require(!table->constant()->absent(), Code::kFailedPrecondition, "[embedding] ", table->name(),
            ": has no data (made from a config alone, or released once it was packed); load the weights");
    return std::make_unique<EmbeddingKernel>(table->constant());
  };
  registry.add(std::move(op));
}

}  // namespace atb
