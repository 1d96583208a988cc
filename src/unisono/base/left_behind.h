#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/log.h"

namespace unisono {

/// Whether operating systems, file servers, archivers, editors or version control left an entry
/// behind: a part of its path begins with a dot or is a name such as __MACOSX, @eaDir or Thumbs.db.
/// Such an entry is no class, sample or shard of a data set or model.
///
/// `path` is relative to the folder or archive that is read, so that the user may keep all data
/// below a folder whose name begins with a dot. Parts "." and ".." count as no names.
[[nodiscard]] bool is_left_behind(std::string_view path);

/// Counts the entries that a reader leaves out, for one line of the log. Not thread-safe.
class LeftOut {
 public:
  /// Counts an entry that is_left_behind(), or whose type or ending is another one than the
  /// reader's. `path` is relative to the folder or archive.
  void add(std::string_view path);

  /// Writes one line with the numbers and the first names, unless nothing was left out.
  ///
  /// `where` begins the line and names the folder or archive.
  void report(const Logger& logger, std::string_view where) const;

 private:
  struct Kind {
    std::size_t n_entries = 0;
    std::vector<std::string> first;
  };

  Kind left_behind_;
  Kind others_;
};

}  // namespace unisono
