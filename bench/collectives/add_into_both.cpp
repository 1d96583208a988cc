#include "add_into_both.h"

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "add_into_both.cpp"
// clang-format off: the order matters to Highway
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();

namespace bench::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Non-temporal stores would double the time, because the cache lines are already loaded.
void add_vectors_into_both(float* a, float* b, std::int64_t count) {
  const hn::ScalableTag<float> tag;
  const auto n_lanes = static_cast<std::int64_t>(hn::Lanes(tag));
  std::int64_t i = 0;
  for (; i + n_lanes <= count; i += n_lanes) {
    const auto sum = hn::Add(hn::Load(tag, a + i), hn::Load(tag, b + i));
    hn::Store(sum, tag, a + i);
    hn::Store(sum, tag, b + i);
  }
  for (; i < count; ++i) {
    const float sum = a[i] + b[i];
    a[i] = sum;
    b[i] = sum;
  }
}

}  // namespace
}  // namespace bench::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bench {
namespace {

HWY_EXPORT(add_vectors_into_both);

}  // namespace

void add_into_both(float* a, float* b, std::int64_t count) {
  HWY_DYNAMIC_DISPATCH(add_vectors_into_both)(a, b, count);
}

}  // namespace bench
#endif  // HWY_ONCE
