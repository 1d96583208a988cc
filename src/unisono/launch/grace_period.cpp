#include "unisono/launch/grace_period.h"

#include <fmt/format.h>
#include <signal.h>

#include "unisono/launch/report.h"

namespace unisono::launch {
namespace {

// Most ranks end within this time, so no line is shown before.
constexpr std::chrono::seconds kQuiet{2};

double in_seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

Deadline GracePeriod::begin(int signal_number) {
  signal_number_ = signal_number;
  since_ = Deadline::Clock::now();
  notice_deadline_ = length_ > kQuiet ? Deadline::after(kQuiet) : Deadline::never();
  return Deadline::after(length_);
}

bool GracePeriod::is_cut_short_by(const CaughtSignal& signal) {
  const bool is_ctrl_c = signal.number == SIGINT && signal.is_from_terminal;
  n_interrupts_ += is_ctrl_c ? 1 : 0;
  return is_ctrl_c && n_interrupts_ > 1;
}

std::string GracePeriod::take_notice(std::span<const int> ranks, int next_signal) {
  end();
  return fmt::format("waiting for {} to end after {}; {} follows it after {} s (--grace){}",
                     rank_list(ranks),
                     signal_name(signal_number_),
                     signal_name(next_signal),
                     in_seconds(length_),
                     n_interrupts_ == 1 ? ", SIGKILL a second Ctrl-C" : "");
}

std::string GracePeriod::describe_expiry(std::span<const int> ranks) const {
  return describe_killed(ranks, length_, signal_number_, "--grace SECONDS");
}

std::string GracePeriod::describe_cut(std::span<const int> ranks) const {
  return ranks.empty() ? ""
                       : fmt::format(
                             "SIGKILL for {}, as Ctrl-C came a second time, {:.1f} s after {}; one "
                             "Ctrl-C leaves them {} s "
                             "(--grace)",
                             rank_list(ranks),
                             in_seconds(Deadline::Clock::now() - since_),
                             signal_name(signal_number_),
                             in_seconds(length_));
}

std::string describe_killed(std::span<const int> ranks,
                            std::chrono::milliseconds grace,
                            int signal_number,
                            const std::string& remedy) {
  return ranks.empty()
             ? ""
             : fmt::format("SIGKILL for {}, which had not ended {} s after {}; {} gives more time",
                           rank_list(ranks),
                           in_seconds(grace),
                           signal_name(signal_number),
                           remedy);
}

Deadline output_deadline(const CaughtSignal& signal, std::chrono::milliseconds grace) {
  return Deadline::after(signal.is_from_terminal ? std::chrono::milliseconds::zero() : grace);
}

}  // namespace unisono::launch
