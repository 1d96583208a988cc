#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace unisono::attacks {

/// One line of a rank's script: "7 all_reduce group=0 dtype=f32 count=12 async=1".
class Line {
 public:
  explicit Line(const std::string& text);

  /// Number of the step. Lines of different ranks with the same step are the same call; values in
  /// memory depend on the step.
  [[nodiscard]] int step() const { return step_; }

  [[nodiscard]] const std::string& verb() const { return verb_; }

  [[nodiscard]] bool has(const std::string& key) const { return values_.contains(key); }

  /// Returns "" if the key is absent.
  [[nodiscard]] std::string text(const std::string& key) const;

  [[nodiscard]] std::int64_t number(const std::string& key, std::int64_t otherwise = 0) const;

  /// Returns the numbers of "counts=3,4"; empty if the key is absent.
  [[nodiscard]] std::vector<std::int64_t> numbers(const std::string& key) const;

  /// The call's own time limit.
  [[nodiscard]] std::optional<std::chrono::milliseconds> timeout() const;

 private:
  int step_ = 0;
  std::string verb_;
  std::map<std::string, std::string> values_;
};

}  // namespace unisono::attacks
