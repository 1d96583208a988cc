#pragma once

#include "unisono/data/images/image_rows.h"

namespace unisono::data {

[[nodiscard]] bool is_jpeg(const ImageFile& file);

/// Throws Error(kCorruptData).
[[nodiscard]] ImageRows decode_jpeg(const ImageFile& file);

}  // namespace unisono::data
