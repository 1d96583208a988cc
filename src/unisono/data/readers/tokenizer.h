#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace unisono {

/// Splits an English text into words and punctuation marks, in small letters.
///
/// As torchtext's "basic_english" does for ASCII text: ' . , ( ) ! ? are tokens of their own,
/// ; : and the mark <br /> part words and vanish, " only vanishes. Bytes beyond ASCII stay as they
/// are.
[[nodiscard]] std::vector<std::string> tokenize(std::string_view text);

}  // namespace unisono
