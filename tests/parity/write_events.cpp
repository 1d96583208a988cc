// Writes event files for test_tensorboard.py:
//
//     write_events FOLDER train FIRST_STEP LAST_STEP | text | forever

#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <string>
#include <vector>

#include "unisono/report/progress.h"

namespace {

using unisono::report::NamedValue;
using unisono::report::Progress;
using unisono::report::ProgressFormat;

void train(const std::string& folder, std::int64_t first, std::int64_t last) {
  Progress progress(
      {.total = last, .start = first, .format = ProgressFormat::kNone, .tensorboard = folder});
  while (progress.n_steps() < last) {
    const double step = static_cast<double>(progress.n_steps() + 1);
    progress.step({{"loss", step == 3 ? std::numeric_limits<double>::quiet_NaN() : 1 / step},
                   {"größe/norm", -1e300 * step}});
  }
  progress.record({{"accuracy", 0.75}});
}

void write_text(const std::string& folder) {
  unisono::report::EventFile first(folder);
  unisono::report::EventFile second(folder);
  first.add_text(7, "report", "| a | b |\n|---|---|\n");
  const std::vector<NamedValue> values{{"x", 1}};
  second.add_scalars(std::numeric_limits<std::int64_t>::max(), values);
}

// Long names make a signal during a write likely.
[[noreturn]] void write_forever(const std::string& folder) {
  unisono::report::EventFile file(folder);
  std::vector<NamedValue> values;
  for (int i = 0; i < 2000; ++i) {
    values.push_back({"a value with a name of some length " + std::to_string(i), 1});
  }
  for (std::int64_t step = 1;; ++step) {
    file.add_scalars(step, values);
  }
}

int run(const std::vector<std::string>& words) {
  if (words.size() == 4 && words[1] == "train") {
    train(words[0], std::stoll(words[2]), std::stoll(words[3]));
  } else if (words.size() == 2 && words[1] == "text") {
    write_text(words[0]);
  } else if (words.size() == 2 && words[1] == "forever") {
    write_forever(words[0]);
  } else {
    std::fprintf(stderr, "usage: write_events FOLDER train FIRST LAST | text | forever\n");
    return 2;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "write_events: %s\n", error.what());
    return 1;
  }
}
