#pragma once

#include <chrono>

namespace unisono::tcp {

/// A peer whose machine vanished is noticed after about this long without an answer, by whoever
/// waits for it.
inline constexpr std::chrono::seconds kLivenessTimeout{20};

/// Who waits looks at its connections again after this long.
inline constexpr std::chrono::seconds kLivenessLook{1};

}  // namespace unisono::tcp
