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
    case Algorithm::kTree:
      return "tree";
    case Algorithm::kHalvingDoubling:
      return "halving_doubling";
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kChunkedRing:
      return "chunked_ring";
    case Algorithm::kParameterServer:
      return "parameter_server";
    case Algorithm::kTwoShotBFloat16:
      return "two_shot_bf16";
    case Algorithm::kTwoShotFloat8:
      return "two_shot_fp8";
  }
  return "unknown algorithm";
}

}  // namespace unisono
