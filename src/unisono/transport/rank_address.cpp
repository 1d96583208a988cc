#include "unisono/transport/rank_address.h"

#include <fmt/format.h>

#include <string>

#include "unisono/base/error.h"
#include "unisono/net/address.h"
#include "unisono/net/hello.h"

namespace unisono::transport {

void check_answer(const RankAddress& rank, const net::HelloInfo& theirs, const std::string& job) {
  if (theirs.rank != rank.job_rank || theirs.job != job) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("{} answered as rank {} of job {}, not as {} of job {}",
                            rank.address.to_string(),
                            theirs.rank,
                            theirs.job,
                            rank.name,
                            job));
  }
}

Error nobody_listens(const RankAddress& rank) {
  return {ErrorCode::kPeerLost,
          fmt::format("{} has left the group, or is gone: nobody listens at {} any more",
                      rank.name,
                      rank.address.to_string())};
}

}  // namespace unisono::transport
