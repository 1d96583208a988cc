#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "unisono/store/requests.h"
#include "unisono/store/session.h"

namespace unisono::store::testing {

/// Takes all replies of the session for its client, as if sent.
inline std::vector<std::byte> take_replies(Session& session) {
  Replies& replies = session.replies();
  std::vector<std::byte> bytes;
  while (replies.n_bytes() > 0) {
    const std::span<const std::byte> first = replies.first();
    bytes.insert(bytes.end(), first.begin(), first.end());
    replies.drop(first.size());
  }
  return bytes;
}

}  // namespace unisono::store::testing
