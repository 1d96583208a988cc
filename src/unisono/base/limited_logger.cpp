#include "unisono/base/limited_logger.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "unisono/base/log.h"

namespace unisono {

LimitedLogger::LimitedLogger(Logger logger, std::size_t most, std::chrono::milliseconds period)
    : logger_(std::move(logger)), most_(most), period_(period) {}

void LimitedLogger::warning(std::string_view text, Time now) {
  if (now - begin_ >= period_) {
    catch_up(now);
    begin_ = now;
    n_lines_ = 0;
  }
  if (++n_lines_ <= most_) {
    logger_.warning(text);
  } else {
    last_ = text;
  }
}

std::optional<LimitedLogger::Time> LimitedLogger::due() const {
  return n_lines_ > most_ ? std::optional(begin_ + period_) : std::nullopt;
}

void LimitedLogger::catch_up(Time now) {
  if (n_lines_ > most_) {
    logger_.warning(fmt::format("and {} more in the last {:.3g} s, the last: {}",
                                n_lines_ - most_,
                                std::chrono::duration<double>(now - begin_).count(),
                                last_));
    begin_ = now;
    n_lines_ = 0;
  }
}

}  // namespace unisono
