#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "unisono/data/sounds/decode_wav.h"

namespace unisono {

/// Sounds that a text file lists, a line each: an id (of the speaker, say), white space, and the
/// path of a WAV file in `folder`. As voxceleb_trainer has them. They are decoded as they are asked
/// for. Thread-safe.
class WavList {
 public:
  /// Reads the list, which may be gzip, and opens none of its files. The list is UTF-8 with or
  /// without a byte order mark; lines end in LF or CR LF; empty lines at the end are skipped. All
  /// sounds must have `sample_rate`; 0: any.
  ///
  /// Throws Error: kNotFound, kSystem; kInvalidArgument for a folder or device, or a negative rate;
  /// kCorruptData for an empty list, another encoding, and, with file and line, where an id or a
  /// path is missing or a CR has no LF.
  WavList(const std::string& list, const std::string& folder, std::int64_t sample_rate);

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(entries_.size()); }

  /// What was asked for; 0: any.
  [[nodiscard]] std::int64_t sample_rate() const { return sample_rate_; }

  /// The ids, sorted; a label is a place in them.
  [[nodiscard]] const std::vector<std::string>& ids() const { return ids_; }

  /// The label of sound `index`, 0 <= index < size().
  [[nodiscard]] std::int64_t label(std::int64_t index) const;

  /// Where sound `index` lies.
  [[nodiscard]] std::string path(std::int64_t index) const;

  /// Decodes sound `index`. Warns once of a Sound that is_streamed.
  ///
  /// Throws Error as read_wav(), with the line of the list before its text.
  [[nodiscard]] Sound sound(std::int64_t index) const;

 private:
  struct Entry {
    std::string path;  // within folder_
    std::int64_t label;
  };

  std::string list_;
  std::string folder_;
  std::int64_t sample_rate_;
  std::vector<std::string> ids_;
  std::vector<Entry> entries_;  // a line each
  // Relaxed: only one of the threads that set it warns, and nothing is handed over.
  mutable std::atomic<bool> has_warned_ = false;
};

}  // namespace unisono
