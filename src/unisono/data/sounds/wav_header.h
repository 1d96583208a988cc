#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace unisono::data {

/// Walks over the chunks of a WAV file up to its samples, all of which must be there.
///
/// libsndfile takes what it finds for the whole, and reads much besides: this says what is missing,
/// and lets only plain formats through. Throws Error(kCorruptData), with the offset.
void check_wav(std::span<const std::byte> file, const std::string& name);

}  // namespace unisono::data
