#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/health/rank_wait.h"
#include "unisono/net/hello.h"
#include "unisono/transport/rank_address.h"

namespace unisono::health {

/// What the hellos of these say they are for: a question about a wait; what ends a circle of waits;
/// and that all its ranks know that.
inline constexpr const char* kWaitPurpose = "wait";
inline constexpr const char* kVerdictPurpose = "verdict";
inline constexpr const char* kVerdictEndPurpose = "verdict-end";

/// For how long a rank is asked, or told something.
inline constexpr std::chrono::milliseconds kAnswerTimeout{1000};

/// A rank of the job, as it is asked or told something: `mine` says for what, and of which group.
struct Respondent {
  transport::RankAddress member;
  std::string secret;
  net::HelloInfo mine;
};

/// Asks in which wait the rank is stuck, so that it can't do its part for `waiter`. Nothing where
/// it may do it, or does not answer within a second. Throws no Error.
[[nodiscard]] std::optional<RankWait> ask_for_wait(const Respondent& respondent,
                                                   const RankWait& waiter);

/// Tells the rank, and waits until it has heard; for a second at most. Throws no Error.
void tell_verdict(const Respondent& respondent, const Error& verdict);

/// A wait that the other side of a connection tells after the hello; nothing if it does not come by
/// then.
[[nodiscard]] std::optional<RankWait> read_wait(int fd, Deadline deadline);

}  // namespace unisono::health
