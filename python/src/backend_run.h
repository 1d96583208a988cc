#pragma once

#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include "backend.h"
#include "errors.h"
#include "staging.h"
#include "work.h"

namespace unisono::python {

template <class Blocking, class Async>
Backend::WorkHandle Backend::run(
    bool is_async, OperationInfo info, Staging staging, Blocking&& blocking, Async&& async) {
  auto work = c10::make_intrusive<Work>(getRank(), std::move(info));
  return with_translated_errors([&]() -> WorkHandle {
    if (is_async) {
      std::vector<unisono::Work> parts;
      parts.push_back(async());
      return follow(std::move(work), std::move(parts), std::move(staging));
    }
    blocking();
    staging.copy_back();
    work->end(nullptr);
    return work;
  });
}

}  // namespace unisono::python
