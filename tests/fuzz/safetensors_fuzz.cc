// SPDX-License-Identifier: Apache-2.0
// A safetensors file: what is accepted covers the data exactly and can be read to the last byte.
#include "frontends/safetensors.h"

#include "frontends/file_writers.h"
#include "fuzz/target.h"

namespace atb::fuzz {

using testing::safetensors_file;
using testing::SafetensorsWriter;

std::vector<std::string> seeds() {
  const std::string metadata = R"({"__metadata__":{"format":"pt"},)";
  return {
      SafetensorsWriter().add("w", {2, 3}, {1, 2, 3, 4, 5, 6}).add("b", {3}, {1, 2, 3}).bytes(),
      safetensors_file(metadata + R"("h":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})", "abcd"),
      safetensors_file(metadata + R"("e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)" +
                           R"("s":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}  )",
                       "ab"),
      safetensors_file(R"({"odd":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("f":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}})",
                       "abcdefghi"),
      safetensors_file("{}", ""),
  };
}

void run(std::string_view input) {
  Safetensors file;
  if (!accepts([&] { file = read_safetensors(MappedFile::of_bytes("x.safetensors", bytes_of(input))); })) return;
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : file.tensors) {
    bytes += tensor->num_bytes();
    expect(tensor->to_f32().size() * dtype_size(tensor->dtype()) == tensor->num_bytes(), "a tensor of another size");
  }
  expect(bytes <= input.size(), "tensors larger than their file");
}

}  // namespace atb::fuzz
