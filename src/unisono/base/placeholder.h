#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace unisono {

/// Bytes of a file's beginning that check_no_placeholder() needs.
inline constexpr std::size_t kPlaceholderBytes = 1024;

/// Checks that a file of data is the file itself and not a substitute that a tool left in its
/// place: a pointer of Git LFS or git-annex, or a web page that was saved by a download.
///
/// `name` is the path, for the error; `beginning` holds the first kPlaceholderBytes or more, or all
/// of a shorter file. Throws Error(kCorruptData) that names the substitute and the command that
/// fetches the file.
void check_no_placeholder(const std::string& name, std::span<const std::byte> beginning);

}  // namespace unisono
