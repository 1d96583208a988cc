#pragma once

#include <array>
#include <cstdio>
#include <span>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"

/// The life cycle of a process group as in user programs, without any launcher code.
inline void all_reduce_ones(const unisono::InitOptions& options = {}) {
  const auto group = unisono::init_process_group(options);
  std::array<float, 4> values{};
  values.fill(1);
  group->all_reduce(unisono::as_buffer(std::span<float>(values)));
  std::printf("(%d,%d) all_reduce(ones)=%g\n",
              group->rank(),
              group->world_size(),
              static_cast<double>(values[0]));
  unisono::destroy_process_group();
}
