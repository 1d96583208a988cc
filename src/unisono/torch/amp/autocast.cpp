#include "unisono/torch/amp/autocast.h"

#include <string>

#include <ATen/autocast_mode.h>

#include "unisono/base/error.h"

namespace unisono {

Autocast::Autocast(c10::ScalarType type, bool is_enabled)
    : was_enabled_(at::autocast::is_autocast_enabled(at::kCPU)),
      previous_type_(at::autocast::get_autocast_dtype(at::kCPU)) {
  if (type != at::kBFloat16 && type != at::kHalf) {
    throw Error(
        ErrorCode::kInvalidArgument,
        std::string("Autocast: CPUs compute in BFloat16 or Half, not in ") + c10::toString(type));
  }
  at::autocast::set_autocast_enabled(at::kCPU, is_enabled);
  at::autocast::set_autocast_dtype(at::kCPU, type);
  at::autocast::increment_nesting();
}

// Parameters were cast once for the scope, and change after it.
Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) {
    at::autocast::clear_cache();
  }
  at::autocast::set_autocast_enabled(at::kCPU, was_enabled_);
  at::autocast::set_autocast_dtype(at::kCPU, previous_type_);
}

}  // namespace unisono
