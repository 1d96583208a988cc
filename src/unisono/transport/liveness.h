#pragma once

#include <chrono>

namespace unisono::transport {

/// A peer whose machine vanished is noticed after about this long without an answer, by whoever
/// waits for it.
inline constexpr std::chrono::seconds kLivenessTimeout{20};

/// Who waits looks at its connections again after this long.
inline constexpr std::chrono::seconds kLivenessLook{1};

/// For so long it is no error that the process has no descriptor for a look at a rank, or to dial
/// one: one may come free, and who accepts connections gives up sooner, which both sides hear of.
inline constexpr std::chrono::seconds kDescriptorPatience{10};

}  // namespace unisono::transport
