#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "unisono/report/named_value.h"

namespace unisono {

namespace report {
class AppendFile;
}

/// An event file, which TensorBoard shows: `tensorboard --logdir FOLDER`.
///
/// Each call is one write: a process that is killed leaves a file that can be read. Where the disk
/// is full, a line on stderr says so, and what does not fit is left out. One thread at a time.
class EventFile {
 public:
  /// A new file in `folder`, which is created if it is missing. A training that goes on from a
  /// checkpoint after `resumed_at` steps takes the place of what older files there have of later
  /// ones.
  ///
  /// Throws Error(kSystem) when it can't be written.
  explicit EventFile(const std::string& folder, std::optional<std::int64_t> resumed_at = {});
  ~EventFile();

  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;
  EventFile(EventFile&&) noexcept;
  EventFile& operator=(EventFile&&) noexcept;

  /// Values are kept in 32 bits.
  void add_scalars(std::int64_t step, std::span<const NamedValue> values);

  /// Shown as Markdown.
  void add_text(std::int64_t step, std::string_view name, std::string_view text);

  [[nodiscard]] const std::string& path() const;

 private:
  std::unique_ptr<report::AppendFile> file_;
};

}  // namespace unisono
