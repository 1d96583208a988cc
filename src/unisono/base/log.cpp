#include "unisono/base/log.h"

#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <utility>

namespace unisono {
namespace {

const char* label(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug: ";
    case LogLevel::kInfo:
      return "";
    case LogLevel::kWarning:
      return "warning: ";
    case LogLevel::kError:
      return "error: ";
  }
  return "";
}

}  // namespace

base::Logger::Logger(std::string name, LogLevel least) : name_(std::move(name)), least_(least) {}

void base::Logger::write(LogLevel level, std::string_view text) const {
  if (!is_enabled(level)) {
    return;
  }
  const std::string line = fmt::format("[unisono {}] {}{}\n", name_, label(level), text);
  // A failed write (stderr closed, disk full) must not end the training.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace unisono
