// SPDX-License-Identifier: Apache-2.0
// generate MODEL COUNT ID...: continues a prompt of token ids with COUNT new ones, greedily, and prints them as they
// come. Exit status: 0; 1 where ATB refused or failed; 2 for wrong arguments.
#include <atb/atb.h>

#include <charconv>
#include <cstdint>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace {

bool parse(std::string_view text, int32_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0;
}

void generate(const std::string& path, int32_t count, std::vector<int32_t> prompt) {
  const auto model = atb::LanguageModel::open(path);
  atb::SamplingParams params;
  params.max_new_tokens = count;
  params.stop_token_ids = model->info().stop_token_ids;
  const auto request = model->submit(std::move(prompt), params);
  for (atb::Progress progress; progress.finished == atb::FinishReason::kNone;) {
    progress = model->next(request);
    for (const int32_t id : progress.tokens) std::cout << id << ' ' << std::flush;
  }
  std::cout << '\n';
  const atb::RequestTiming timing = model->timing(request);
  std::cerr << "first token after " << timing.prefill_s << " s, the others in " << timing.decode_s << " s\n";
}

}  // namespace

int main(int argc, char** argv) {
  int32_t count = 0;
  std::vector<int32_t> prompt(argc > 3 ? static_cast<size_t>(argc - 3) : 0);
  bool good = !prompt.empty() && parse(argv[2], count);
  for (size_t i = 0; good && i < prompt.size(); ++i) good = parse(argv[i + 3], prompt[i]);
  if (!good) {
    std::cerr << "usage: generate MODEL COUNT ID...\n"
                 "MODEL is a .gguf file or a Hugging Face directory; COUNT and IDs are whole numbers from 0.\n";
    return 2;
  }
  try {
    generate(argv[1], count, std::move(prompt));
    return 0;
  } catch (const atb::Error& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
