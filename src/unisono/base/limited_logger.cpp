#include "unisono/base/limited_logger.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <string_view>
#include <utility>

#include "unisono/base/log.h"

namespace unisono {

LimitedLogger::LimitedLogger(Logger logger, std::size_t most, std::chrono::seconds period)
    : logger_(std::move(logger)), most_(most), period_(period) {}

void LimitedLogger::warning(std::string_view text, Time now) {
  if (now - begin_ >= period_) {
    if (n_lines_ > most_) {
      logger_.warning(fmt::format("left out {} lines like this: {}", n_lines_ - most_, text));
      begin_ = now;
      n_lines_ = 1;
      return;
    }
    begin_ = now;
    n_lines_ = 0;
  }
  if (++n_lines_ <= most_) {
    logger_.warning(text);
  }
}

}  // namespace unisono
