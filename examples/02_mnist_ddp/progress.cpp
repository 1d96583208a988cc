#include "progress.h"

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace mnist {
namespace {

constexpr int kWidth = 30;

std::string repeated(std::string_view cell, std::int64_t times) {
  std::string text;
  for (std::int64_t i = 0; i < times; ++i) {
    text += cell;
  }
  return text;
}

bool is_set(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

}  // namespace

Progress::Progress(bool is_shown, int epoch, int n_epochs, std::int64_t n_steps)
    : is_terminal_(is_shown && ::isatty(STDOUT_FILENO) == 1),
      has_color_(!is_set("NO_COLOR")),
      title_("epoch " + std::to_string(epoch) + "/" + std::to_string(n_epochs)),
      n_steps_(n_steps) {}

void Progress::update(std::int64_t step, double loss, double images_per_second) {
  const auto now = std::chrono::steady_clock::now();
  if (!is_terminal_ || now < next_draw_) {
    return;
  }
  next_draw_ = now + std::chrono::milliseconds(100);
  const std::int64_t n_full = step * kWidth / n_steps_;
  const std::string bar = (has_color_ ? "\033[32m" : "") + repeated("█", n_full) +
                          (has_color_ ? "\033[0m" : "") + repeated("░", kWidth - n_full);
  std::printf("\r\033[K%s %s %3lld%%  loss %.4f  %.0f images/s",
              title_.c_str(),
              bar.c_str(),
              static_cast<long long>(step * 100 / n_steps_),
              loss,
              images_per_second);
  std::fflush(stdout);
}

void Progress::clear() {
  if (is_terminal_) {
    std::printf("\r\033[K");
    std::fflush(stdout);
  }
}

}  // namespace mnist
