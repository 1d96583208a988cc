#include "unisono/net/backoff.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "unisono/base/deadline.h"
#include "unisono/base/interruption.h"

namespace unisono::net {

using std::chrono::milliseconds;

void Backoff::pause(Deadline deadline) {
  std::uniform_int_distribution<milliseconds::rep> draw(pause_.count() / 2, pause_.count());
  const milliseconds chosen(draw(random_));
  interruptible_sleep_until(earlier(Deadline::after(chosen), deadline));
  pause_ = std::min(pause_ * 2, milliseconds(500));
}

}  // namespace unisono::net
