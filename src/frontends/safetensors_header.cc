// SPDX-License-Identifier: Apache-2.0
// Header parser: a small state machine over JSON events. Depth 1 is tensor names, depth 2 the fields of one tensor,
// depth 3 the numbers of `shape` and `data_offsets`; anything else is refused where it stands.
#include "frontends/safetensors_header.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/error.h"

namespace atb {
namespace {

using Json = nlohmann::json;

class HeaderHandler : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderHandler(const std::string& where) : where_(where) {}
  SafetensorsHeader take() { return std::move(header_); }

  bool start_object(size_t) override {
    if (depth_ == 2) fail("an object where ", place(), " expects ", expected());
    if (depth_ == 3) fail("an object inside ", place());
    ++depth_;
    fields_.clear();
    return true;
  }

  bool end_object() override {
    if (depth_ == 2 && !in_metadata_) finish_tensor();
    --depth_;
    return true;
  }

  bool key(std::string& text) override {
    if (depth_ == 1) {
      if (!names_.insert(text).second) fail("the key \"", text, "\" appears twice");
      in_metadata_ = text == "__metadata__";
      name_ = text;
      if (!in_metadata_) {
        header_.entries.emplace_back();
        header_.entries.back().name = text;
      }
      return true;
    }
    if (!fields_.insert(text).second) fail("the key \"", text, "\" appears twice in ", place());
    field_ = text;
    if (!in_metadata_ && field_ != "dtype" && field_ != "shape" && field_ != "data_offsets") {
      fail(place(), " has an unknown key \"", text, "\"; allowed: dtype, shape, data_offsets");
    }
    return true;
  }

  bool string(std::string& text) override {
    if (depth_ == 2 && in_metadata_) {
      header_.metadata[field_] = text;
    } else if (depth_ == 2 && field_ == "dtype") {
      header_.entries.back().dtype = text;
    } else {
      fail("a string where ", place(), " expects ", expected());
    }
    return true;
  }

  bool start_array(size_t) override {
    if (depth_ != 2 || in_metadata_ || field_ == "dtype") fail("an array where ", place(), " expects ", expected());
    ++depth_;
    offsets_.clear();
    return true;
  }

  bool end_array() override {
    --depth_;
    if (field_ != "data_offsets") return true;
    if (offsets_.size() != 2) fail(place(), ": data_offsets has ", offsets_.size(), " numbers, must have 2");
    header_.entries.back().begin = offsets_[0];
    header_.entries.back().end = offsets_[1];
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (depth_ != 3) fail("a number where ", place(), " expects ", expected());
    (field_ == "shape" ? header_.entries.back().shape : offsets_).push_back(value);
    return true;
  }

  bool number_integer(int64_t value) override { fail(place(), ": negative number ", value, " in ", field_); }
  bool number_float(double, const std::string& text) override {
    fail(place(), ": ", text, " in ", field_, " is not an integer of 64 bits");
  }
  bool null() override { fail("null where ", place(), " expects ", expected()); }
  bool boolean(bool) override { fail("a boolean where ", place(), " expects ", expected()); }
  bool binary(Json::binary_t&) override { fail("binary data"); }

  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    fail("not valid JSON at byte ", position);
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw_error(Code::kDataLoss, where_, ": header: ", parts...);
  }

  std::string place() const {
    if (depth_ == 0) return "the header";
    return in_metadata_ ? "__metadata__" : "tensor " + name_;
  }

  const char* expected() const {
    if (depth_ < 2) return "an object";
    if (in_metadata_ || field_ == "dtype") return "a string";
    return depth_ == 2 ? "an array" : "unsigned integers";
  }

  void finish_tensor() {
    for (const char* required : {"dtype", "shape", "data_offsets"}) {
      if (!fields_.contains(required)) fail("tensor ", name_, " has no ", required);
    }
  }

  const std::string& where_;
  SafetensorsHeader header_;
  int depth_ = 0;
  bool in_metadata_ = false;
  std::string name_, field_;
  std::set<std::string> names_, fields_;
  std::vector<uint64_t> offsets_;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& where) {
  HeaderHandler handler(where);
  Json::sax_parse(json.begin(), json.end(), &handler);
  return handler.take();
}

}  // namespace atb
