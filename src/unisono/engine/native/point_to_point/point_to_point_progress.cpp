#include "unisono/engine/native/point_to_point/point_to_point_progress.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"
#include "unisono/engine/message_call.h"
#include "unisono/engine/native/point_to_point/buffer_check.h"
#include "unisono/engine/native/point_to_point/message_matcher.h"
#include "unisono/engine/native/point_to_point/message_operation.h"
#include "unisono/transport/relayed_error.h"
#include "unisono/transport/waiter.h"

namespace unisono::engine {

PointToPointProgress::PointToPointProgress(const NativeParts& parts,
                                           GroupTransports& transports,
                                           bool has_cores)
    : parts_(parts),
      has_cores_(has_cores),
      control_block_(transports.control_block()),
      endpoint_(transports.endpoint()),
      packet_streams_(transports.packet_streams()),
      out_of_memory_(ErrorCode::kInternal, parts.ranks.prefix() + " is out of memory"),
      matcher_({.topology = parts.transports.topology,
                .endpoint = endpoint_,
                .packet_streams = packet_streams_,
                .ranks = parts.ranks,
                // Only one of two ranks on one core can copy at a time.
                .prefers_single_copy = parts.single_copy == SingleCopy::kAlways || !has_cores}),
      waiting_{.parts = parts,
               .matcher = matcher_,
               .look_again = [this]() UNISONO_REQUIRES(mutex_) { take_all(); }} {}

PointToPointProgress::~PointToPointProgress() {
  finish();
}

// What a rank has sent before it left may be more than one look takes. Others may go on sending.
void PointToPointProgress::take_all() {
  constexpr int kMostLooks = 1000;
  for (int n = 0; n < kMostLooks && advance(); ++n) {
  }
}

int PointToPointProgress::pass(const MessageCall& call) {
  throw_if_closed();
  if (call.is_send && send_at_once(call)) {
    return kAnyRank;
  }
  MessageOperation request(call, waiting_);
  request.is_attended = true;
  request.thread = this_thread_number();
  const Arrival arrival = spin_for(request);
  if (arrival == Arrival::kReceived) {
    return request.source;
  }
  bool has_ended = false;
  transport::WaitMode mode{};
  {
    const MutexLock lock(mutex_);
    throw_if_stopping();
    request.id = next_id();
    post(request);
    has_ended = request.has_ended && finished_.empty();
    if (!has_ended) {
      begin_spinning();
      mode = mode_of(request);
      if (arrival == Arrival::kNotYet) {
        mode.n_spins = 0;
      }
    }
  }
  if (!has_ended) {
    drive(
        request.thread,
        [&] { return request.has_ended; },
        mode,
        has_cores_ && !needs_network(request) ? &spin_limit_ : nullptr);
  }
  if (request.error) [[unlikely]] {
    throw Error(*request.error);
  }
  return request.source;
}

void PointToPointProgress::begin(std::span<const MessageCall> calls) {
  throw_if_closed();
  Requests requests;
  requests.reserve(calls.size());
  for (const MessageCall& call : calls) {
    requests.push_back(std::make_unique<MessageOperation>(call, waiting_));
  }
  Requests finished;
  std::optional<Error> error;
  {
    const MutexLock lock(mutex_);
    throw_if_stopping();
    const bool have_begun = guard([&]() UNISONO_REQUIRES(mutex_) {
      // First of all: without the thread no message must begin.
      start_progress();
      for (std::unique_ptr<MessageOperation>& request : requests) {
        begin(std::move(request));
      }
      return true;
    });
    error = have_begun ? std::nullopt : error_;
    finished.swap(finished_);
    if (n_async_ > 0) {
      wake_watch();
      changed_.notify_all();
    }
  }
  if (error) [[unlikely]] {
    parts_.failure.note_delivered();
    settle_failure();
  }
  complete(finished);
  if (error) [[unlikely]] {
    throw Error(*error);
  }
}

bool PointToPointProgress::send_at_once(const MessageCall& call) {
  const MutexLock lock(mutex_);
  throw_if_stopping();
  return guard([&]() UNISONO_REQUIRES(mutex_) {
    return matcher_.send_at_once(call.peer, call.tag, call.buffer, call.label);
  });
}

void PointToPointProgress::begin(std::unique_ptr<MessageOperation> request) {
  request->id = next_id();
  request->handle->begin(request->id);
  if (parts_.checks_buffers) {
    check_buffer(*request);
  }
  // finish_request() owns it again.
  post(*request.release());
}

// From here on, until somebody waits.
void PointToPointProgress::check_buffer(MessageOperation& request) const {
  if (request.is_send) {
    request.handle->set_check(unchanged_check(request.buffer, name_of(request)));
    return;
  }
  request.handle->set_check(untouched_check(request.buffer, name_of(request)));
}

// Also tells the other ranks of a failure that was found between two operations.
void PointToPointProgress::throw_if_closed() {
  if (parts_.failure.is_set()) [[unlikely]] {
    tell_();
    parts_.failure.note_delivered();
    throw Error(
        ErrorCode::kClosed,
        fmt::format("the process group is closed since: {}", parts_.failure.error().what()));
  }
}

void PointToPointProgress::throw_if_stopping() const {
  if (is_stopping_) {
    throw Error(ErrorCode::kClosed, "the process group was destroyed");
  }
}

void PointToPointProgress::post(MessageOperation& request) {
  guard([&]() UNISONO_REQUIRES(mutex_) {
    matcher_.post(request);
    return true;
  });
  if (!request.has_ended) {
    enroll(request);
    (void)guard([&]() UNISONO_REQUIRES(mutex_) { return matcher_.progress(n_networked_ > 0); });
  }
  take_ended();
}

// Moves what can be moved. Returns whether anything was.
bool PointToPointProgress::advance() {
  if (parts_.failure.is_set()) [[unlikely]] {
    end_all();
    return true;
  }
  const bool has_moved =
      guard([&]() UNISONO_REQUIRES(mutex_) { return matcher_.progress(n_networked_ > 0); });
  take_ended();
  return has_moved;
}

void PointToPointProgress::take_ended() {
  if (matcher_.ended().empty()) {
    return;
  }
  for (Message* const message : matcher_.ended()) {
    finish_request(static_cast<MessageOperation&>(*message));
  }
  matcher_.clear_ended();
  show_waits();
}

void PointToPointProgress::enroll(MessageOperation& request) {
  request.place = requests_.size();
  requests_.push_back(&request);
  n_async_ += request.handle != nullptr ? 1 : 0;
  n_networked_ += needs_network(request) ? 1 : 0;
}

void PointToPointProgress::finish_request(MessageOperation& request) {
  if (request.place) {
    have_waits_changed_ = have_waits_changed_ || request.has_waited_long();
    MessageOperation* const last = requests_.back();
    requests_[*request.place] = last;
    last->place = request.place;
    requests_.pop_back();
    n_async_ -= request.handle != nullptr ? 1 : 0;
    n_networked_ -= needs_network(request) ? 1 : 0;
  }
  if (request.handle != nullptr) {
    finished_.emplace_back(&request);
  }
  if (is_stopping_ && requests_.empty()) {
    changed_.notify_all();
  }
}

std::string PointToPointProgress::name_of(const MessageOperation& request) const {
  return fmt::format("{} {}", parts_.ranks.prefix(), describe(request, parts_.ranks.job_ranks()));
}

void PointToPointProgress::note(ErrorCode code, const char* problem) noexcept {
  if (error_) {
    return;
  }
  try {
    error_.emplace(code, fmt::format("{} {}", parts_.ranks.prefix(), problem));
  } catch (const std::exception&) {
    error_ = out_of_memory_;
  }
}

// The group has failed, and with it all that is under way.
void PointToPointProgress::end_all() {
  const Error error = parts_.failure.error();
  packet_streams_.abort(error);
  matcher_.abandon();
  error_ = error;
  while (!requests_.empty()) {
    MessageOperation& request = *requests_.back();
    parts_.failure.note_delivered();
    fail_request(request, error_of(request, error));
  }
  show_waits();
}

// The group's, with the call that it ends, where it does not begin with that.
Error PointToPointProgress::error_of(const MessageOperation& request,
                                     const Error& failure) const noexcept {
  try {
    return transport::with_call(
        parts_.ranks.prefix(), describe(request, parts_.ranks.job_ranks()), failure);
  } catch (const std::exception&) {
    return failure;  // Out of memory, say.
  }
}

void PointToPointProgress::fail_request(MessageOperation& request, const Error& error) {
  request.error = error;
  request.has_ended = true;
  finish_request(request);
}

bool PointToPointProgress::check_requests() {
  bool is_one_overdue = false;
  // From the back, as checks may end some: then the last takes its place.
  for (std::size_t i = requests_.size(); i-- > 0;) {
    if (i < requests_.size() && !error_) {
      MessageOperation& request = *requests_[i];
      const bool had_waited_long = request.has_waited_long();
      const bool was_overdue = request.is_overdue();
      (void)guard([&]() UNISONO_REQUIRES(mutex_) {
        request.check();
        return true;
      });
      have_waits_changed_ = have_waits_changed_ || request.has_waited_long() != had_waited_long;
      is_one_overdue = is_one_overdue || (request.is_overdue() && !was_overdue);
    }
  }
  show_waits();
  return is_one_overdue;
}

void PointToPointProgress::show_waits() {
  if (std::exchange(have_waits_changed_, false)) [[unlikely]] {
    control_block_.note_waits(describe_long_waits(requests_, parts_.ranks.job_ranks()));
  }
}

health::WaitId PointToPointProgress::next_id() {
  return {.group = parts_.transports.group, .is_message = true, .sequence = ++n_messages_};
}

void PointToPointProgress::wake() const noexcept {
  endpoint_.wake();
  packet_streams_.wake();
}

void PointToPointProgress::abort(const Error& reason) noexcept {
  const MutexLock lock(mutex_);
  packet_streams_.abort(reason);
}

}  // namespace unisono::engine
