#pragma once

#include <string>
#include <string_view>

namespace unisono {

/// Severity of a log line, in ascending order.
enum class LogLevel { kDebug, kInfo, kWarning, kError };

namespace base {

/// Writes log lines to stderr: "[unisono rank 3] warning: text". Each line is a single write(2), so
/// that lines of several ranks do not mix. Thread-safe and cheap to copy. Write errors are ignored.
class Logger {
 public:
  /// `name` appears in every line, e.g. "rank 3" or "run". Lines below the level `least` are
  /// dropped.
  explicit Logger(std::string name, LogLevel least = LogLevel::kInfo);

  /// Writes a line of level kDebug.
  void debug(std::string_view text) const { write(LogLevel::kDebug, text); }

  /// Writes a line of level kInfo.
  void info(std::string_view text) const { write(LogLevel::kInfo, text); }

  /// Writes a line of level kWarning.
  void warning(std::string_view text) const { write(LogLevel::kWarning, text); }

  /// Writes a line of level kError.
  void error(std::string_view text) const { write(LogLevel::kError, text); }

  /// Returns true if lines of this level are written. Allows callers to avoid the formatting of a
  /// dropped line.
  [[nodiscard]] bool is_enabled(LogLevel level) const { return level >= least_; }

 private:
  void write(LogLevel level, std::string_view text) const;

  std::string name_;
  LogLevel least_;
};

}  // namespace base

}  // namespace unisono
