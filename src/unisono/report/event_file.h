#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "unisono/report/progress.h"

namespace unisono::report {

class AppendFile;

/// An event file for TensorBoard: `tensorboard --logdir FOLDER`.
///
/// Each call is a single write: a killed process leaves a readable file. Write errors do not throw
/// after construction: if the disk is full, a line on stderr reports the error, and records that
/// cannot be written are dropped. Not thread-safe.
class EventFile {
 public:
  /// Creates a new file in `folder`, and the folder if it is missing. If a training continues from
  /// a checkpoint after `resumed_at` steps, the new file supersedes the later steps in older files
  /// of the folder.
  ///
  /// Throws Error(kSystem) if the file cannot be written.
  explicit EventFile(const std::string& folder, std::optional<std::int64_t> resumed_at = {});
  ~EventFile();

  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;
  EventFile(EventFile&&) noexcept;
  EventFile& operator=(EventFile&&) noexcept;

  /// Adds values of a step, stored in 32 bits.
  void add_scalars(std::int64_t step, std::span<const NamedValue> values);

  /// Adds a text, which TensorBoard shows as Markdown.
  void add_text(std::int64_t step, std::string_view name, std::string_view text);

  [[nodiscard]] const std::string& path() const;

 private:
  std::unique_ptr<AppendFile> file_;
};

}  // namespace unisono::report
