#pragma once

#include <cstdint>

namespace unisono {

/// What is done where the ranks' parameters are no longer the same bits: a state was loaded on some
/// ranks only, or they make other steps.
enum class ParameterDrift : std::uint8_t {
  kIgnore,  ///< Nothing is compared.
  kWarn,    ///< Rank 0 names the first parameter and two ranks, once.
  kThrow    ///< backward() throws on all ranks, with them.
};

}  // namespace unisono
