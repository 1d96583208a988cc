#pragma once

#include <string>

namespace unisono::cli::bench {

/// Throws Error(kSystem) if write_json() can't write to `path`. Changes no file that is there.
void check_json_path(const std::string& path);

/// Makes `lines` the whole content of the file: written beside it, then renamed, so that a file
/// which is there stays as it was until then. A pipe or device is written to as it is.
///
/// Throws Error(kSystem) if it can't be written.
void write_json(const std::string& path, const std::string& lines);

}  // namespace unisono::cli::bench
