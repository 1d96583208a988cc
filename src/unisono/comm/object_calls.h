#pragma once

#include <memory>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/comm/call.h"
#include "unisono/comm/membership.h"
#include "unisono/comm/options.h"

namespace unisono::comm {

/// An operation on objects: the sizes, then the bytes, which come to lie in `result`. Both calls
/// hold what they need.
template <class Result>
struct ObjectCalls {
  Call sizes;
  NextCall bytes;
  std::shared_ptr<Result> result;
};

using ObjectList = std::vector<std::string>;

// Inputs are bytes; who passes them keeps them alive, or hands over a share of their memory.

[[nodiscard]] ObjectCalls<ObjectList> all_gather_object_calls(Membership& membership,
                                                              const Buffer& object,
                                                              const ObjectOptions& options);
[[nodiscard]] ObjectCalls<ObjectList> gather_object_calls(Membership& membership,
                                                          const Buffer& object,
                                                          int root,
                                                          const ObjectOptions& options);
[[nodiscard]] ObjectCalls<std::string> broadcast_object_calls(Membership& membership,
                                                              const Buffer& object,
                                                              int root,
                                                              const ObjectOptions& options);
[[nodiscard]] ObjectCalls<std::string> scatter_object_calls(Membership& membership,
                                                            const std::vector<Buffer>& objects,
                                                            int root,
                                                            const ObjectOptions& options);

}  // namespace unisono::comm
