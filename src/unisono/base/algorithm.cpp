#include "unisono/base/algorithm.h"

namespace unisono {

const char* to_string(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::kAuto:
      return "auto";
    case Algorithm::kOneShot:
      return "one_shot";
    case Algorithm::kTwoShot:
      return "two_shot";
  }
  return "unknown algorithm";
}

}  // namespace unisono
