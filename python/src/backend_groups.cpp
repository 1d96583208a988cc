#include <algorithm>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "backend.h"
#include "connect.h"
#include "options.h"

namespace unisono::python {
namespace {

// Options of another type belong to the backend of another device, so only their timeout is used.
c10::intrusive_ptr<Options> options_of(const c10::intrusive_ptr<c10d::Backend::Options>& given,
                                       const c10::intrusive_ptr<Options>& otherwise) {
  if (const auto own = c10::dynamic_intrusive_pointer_cast<Options>(given)) {
    return c10::make_intrusive<Options>(*own);
  }
  auto options = c10::make_intrusive<Options>(*otherwise);
  if (given != nullptr) {
    options->timeout = given->timeout;
  }
  return options;
}

}  // namespace

c10::intrusive_ptr<c10d::Backend> Backend::split(
    const c10::intrusive_ptr<c10d::Store>& store,
    const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const auto self = std::find(ranks.begin(), ranks.end(), getRank());
  if (self == ranks.end()) {
    return nullptr;
  }
  const auto own = options_of(options, options_);
  return c10::make_intrusive<Backend>(GroupPlan{.store = store,
                                                .rank = static_cast<int>(self - ranks.begin()),
                                                .world_size = static_cast<int>(ranks.size()),
                                                .timeout = own->timeout,
                                                .parent_ranks = ranks,
                                                .parent = group_},
                                      own);
}

c10::intrusive_ptr<c10d::Backend> Backend::merge(
    const c10::intrusive_ptr<c10d::Store>& store,
    const c10::intrusive_ptr<c10d::Backend::Options>& options,
    const int& rank,
    const int& size) {
  const auto own = options_of(options, options_);
  return c10::make_intrusive<Backend>(
      GroupPlan{.store = store, .rank = rank, .world_size = size, .timeout = own->timeout}, own);
}

}  // namespace unisono::python
