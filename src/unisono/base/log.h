#pragma once

#include <string>
#include <string_view>

namespace unisono {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Writes lines to stderr, each in one write(2), so that the lines of several ranks stay whole:
/// "[unisono rank 3] warning: text". Thread-safe, cheap to copy.
class Logger {
 public:
  /// `name` stands in every line, e.g. "rank 3" or "run".
  explicit Logger(std::string name, LogLevel least = LogLevel::kInfo);

  void debug(std::string_view text) const { write(LogLevel::kDebug, text); }

  void info(std::string_view text) const { write(LogLevel::kInfo, text); }

  void warning(std::string_view text) const { write(LogLevel::kWarning, text); }

  void error(std::string_view text) const { write(LogLevel::kError, text); }

  [[nodiscard]] bool is_enabled(LogLevel level) const { return level >= least_; }

 private:
  void write(LogLevel level, std::string_view text) const;

  std::string name_;
  LogLevel least_;
};

}  // namespace unisono
