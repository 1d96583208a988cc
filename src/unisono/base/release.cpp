#include "unisono/base/release.h"

namespace unisono {

const char* release() noexcept {
  return UNISONO_VERSION;
}

}  // namespace unisono
