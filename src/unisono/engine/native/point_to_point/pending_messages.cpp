#include "unisono/engine/native/point_to_point/pending_messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "unisono/base/thread.h"
#include "unisono/transport/failure.h"
#include "unisono/transport/rank_table.h"

namespace unisono::engine {

PendingMessages::PendingMessages(const NativeParts& parts,
                                 GroupTransports& transports,
                                 bool has_cores)
    : parts_(parts),
      group_(parts.group),
      control_block_(transports.control_block()),
      packet_streams_(transports.packet_streams()),
      out_of_memory_(ErrorCode::kInternal, group_.prefix + " is out of memory"),
      matcher_(
          {.ranks = group_.ranks,
           .topology = group_.topology,
           .job_ranks = group_.job_ranks,
           .endpoint = transports.endpoint(),
           .packet_streams = packet_streams_,
           // Two ranks on a single core cannot copy at the same time.
           .prefers_single_copy = parts.config.single_copy == SingleCopy::kAlways || !has_cores}) {}

Arrival PendingMessages::receive_at_once(MessageOperation& receive, int n_polls) {
  if (!operations_.empty() || group_.failure.is_set()) {
    return Arrival::kInvolved;
  }
  auto arrival = Arrival::kNotYet;
  for (int n = 0; n < n_polls && arrival == Arrival::kNotYet; ++n) {
    if (n > 0) {
      pause_briefly();
    }
    const bool is_sound = guard([&] {
      arrival = matcher_.receive_at_once(receive);
      return true;
    });
    arrival = is_sound ? arrival : Arrival::kInvolved;
  }
  return arrival;
}

void PendingMessages::post(MessageOperation& operation) {
  operation.id = next_id();
  start(operation);
}

bool PendingMessages::begin(Operations& operations) {
  return guard([&] {
    for (std::unique_ptr<MessageOperation>& operation : operations) {
      operation->id = next_id();
      operation->handle->begin(operation->id);
      if (parts_.config.checks_buffers) {
        operation->guard_buffer();
      }
      // finish() takes ownership again.
      start(*operation.release());
    }
    (void)progress();
    take_ended();
    return true;
  });
}

transport::WaitId PendingMessages::next_id() {
  return {.group = group_.number, .is_message = true, .sequence = ++n_messages_};
}

void PendingMessages::start(MessageOperation& operation) {
  (void)guard([&] {
    matcher_.post(operation);
    return true;
  });
  if (!operation.has_ended) {
    operation.place = operations_.size();
    operations_.push_back(&operation);
    n_async_ += operation.handle != nullptr ? 1 : 0;
    n_networked_ += operation.needs_network() ? 1 : 0;
  }
  take_ended();
}

bool PendingMessages::advance() {
  if (group_.failure.is_set()) [[unlikely]] {
    end_all();
    return true;
  }
  const bool has_moved = progress();
  take_ended();
  return has_moved;
}

// The limit is for peers that continue to send.
void PendingMessages::advance_all() {
  constexpr int kMostPasses = 1000;
  for (int n = 0; n < kMostPasses && advance(); ++n) {
  }
}

void PendingMessages::read_between_calls() {
  // Passes over the peers. The limit bounds the memory of unexpected messages.
  constexpr int kMostPasses = 16;
  const auto read = [&] {
    return operations_.empty() ? matcher_.progress(true) : matcher_.progress_between_nodes();
  };
  for (int n = 0; n < kMostPasses && guard(read); ++n) {
  }
}

void PendingMessages::take_ended() {
  if (matcher_.ended().empty()) {
    return;
  }
  for (Message* const message : matcher_.ended()) {
    finish(static_cast<MessageOperation&>(*message));
  }
  matcher_.clear_ended();
  show_waits();
}

void PendingMessages::finish(MessageOperation& operation) {
  if (operation.place) {
    have_waits_changed_ = have_waits_changed_ || operation.has_waited_long();
    MessageOperation* const last = operations_.back();
    operations_[*operation.place] = last;
    last->place = operation.place;
    operations_.pop_back();
    n_async_ -= operation.handle != nullptr ? 1 : 0;
    n_networked_ -= operation.needs_network() ? 1 : 0;
  }
  if (operation.handle != nullptr) {
    finished_.emplace_back(&operation);
  }
}

void PendingMessages::fail(MessageOperation& operation, const Error& error) {
  operation.error = error;
  operation.has_ended = true;
  finish(operation);
}

void PendingMessages::end_all() {
  const Error error = group_.failure.error();
  packet_streams_.abort(error);
  matcher_.abandon();
  error_ = error;
  while (!operations_.empty()) {
    MessageOperation& operation = *operations_.back();
    group_.failure.note_delivered();
    fail(operation, error_of(operation, error));
  }
  show_waits();
}

// Returns the group's failure, with the call that it ends unless the text already begins with the
// call.
Error PendingMessages::error_of(const MessageOperation& operation,
                                const Error& failure) const noexcept {
  try {
    return transport::with_call(group_.prefix, operation.text(), failure);
  } catch (const std::exception&) {
    return failure;  // For example out of memory.
  }
}

void PendingMessages::note(ErrorCode code, const char* problem) noexcept {
  if (error_) {
    return;
  }
  try {
    error_.emplace(code, fmt::format("{} {}", group_.prefix, problem));
  } catch (const std::exception&) {
    error_ = out_of_memory_;
  }
}

bool PendingMessages::check() {
  bool is_one_overdue = false;
  // Iterates backwards, because a check may end an operation, and the last operation then takes its
  // place.
  for (std::size_t i = operations_.size(); i-- > 0;) {
    if (i < operations_.size() && !error_) {
      MessageOperation& operation = *operations_[i];
      const bool had_waited_long = operation.has_waited_long();
      const bool was_overdue = operation.is_overdue();
      (void)guard([&] {
        operation.check();
        return true;
      });
      have_waits_changed_ = have_waits_changed_ || operation.has_waited_long() != had_waited_long;
      is_one_overdue = is_one_overdue || (operation.is_overdue() && !was_overdue);
    }
  }
  show_waits();
  return is_one_overdue || (!credit_until_.is_never() && find_debtors().empty());
}

void PendingMessages::show_waits() {
  if (std::exchange(have_waits_changed_, false)) [[unlikely]] {
    control_block_.note_waits(describe_long_waits(operations_, group_.job_ranks));
  }
}

Deadline PendingMessages::next_check() {
  Deadline next = credit_until_;
  for (MessageOperation* const operation : operations_) {
    next = earlier(next, operation->next_check());
  }
  return next;
}

const MessageOperation* PendingMessages::find_overdue(std::uint64_t thread) const {
  const auto found =
      std::find_if(operations_.begin(), operations_.end(), [&](const auto* operation) {
        return operation->is_overdue() && operation->thread == thread;
      });
  return found == operations_.end() || error_ ? nullptr : *found;
}

void PendingMessages::expire(const transport::WaitId& id, const std::string& late) {
  for (const MessageOperation* const operation : operations_) {
    if (operation->id == id) {
      (void)guard([&]() -> bool { operation->expire(late); });
      return;
    }
  }
}

std::optional<transport::Stall> PendingMessages::find_receive(const Predicate& is_it,
                                                              std::vector<int>& gone) const {
  const auto found =
      std::find_if(operations_.begin(), operations_.end(), [&](const auto* operation) {
        return operation->is_unanswered_receive() && is_it(*operation);
      });
  if (found == operations_.end()) {
    return std::nullopt;
  }
  const MessageOperation& receive = **found;
  const transport::RankTable& roster = group_.ranks;
  transport::Stall wait{.id = receive.id,
                        .rank = roster.self().job_rank,
                        .late = {},
                        .is_for_any = receive.peer == kAnyRank,
                        .text = receive.text()};
  for (int rank = 0; rank < roster.world_size(); ++rank) {
    const bool is_other = wait.is_for_any && rank != roster.rank;
    if (rank == receive.peer || (is_other && receive.may_send(rank))) {
      wait.late.push_back(
          {.rank = roster.member(rank).job_rank, .n_arrived = matcher_.n_arrived(rank)});
    } else if (is_other) {
      gone.push_back(rank);
    }
  }
  return wait;
}

void PendingMessages::cancel_receives() {
  for (Message* const message : matcher_.cancel_receives()) {
    auto& operation = static_cast<MessageOperation&>(*message);
    fail(operation,
         Error(ErrorCode::kClosed,
               fmt::format("{} {}: the process group was destroyed before a message came",
                           group_.prefix,
                           operation.text())));
  }
  show_waits();
}

std::vector<int> PendingMessages::find_debtors() const {
  std::vector<int> ranks;
  for (int rank = 0; !has_failed() && rank < group_.topology.world_size(); ++rank) {
    if (matcher_.owes_credit(rank) && !matcher_.has_left(rank) &&
        !group_.events.has_left_messages(rank)) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

bool PendingMessages::ask_for_credit(Deadline deadline) {
  (void)guard([&] {
    matcher_.ask_for_credit();
    return matcher_.progress(true);  // A peer may ask this rank for credit as well.
  });
  if (find_debtors().empty()) {
    return false;
  }
  credit_until_ = deadline;
  n_networked_ += n_credit_networks();
  return true;
}

void PendingMessages::end_credit_wait() {
  credit_until_ = Deadline::never();
  n_networked_ -= n_credit_networks();
}

// The wait for credit needs the connections like an operation between nodes.
std::size_t PendingMessages::n_credit_networks() const {
  return group_.topology.n_nodes() > 1 ? 1 : 0;
}

}  // namespace unisono::engine
