#include "unisono/comm/messenger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"
#include "unisono/comm/buffer_check.h"
#include "unisono/comm/guarded_receive.h"
#include "unisono/comm/message_request.h"
#include "unisono/comm/rank_wait.h"
#include "unisono/comm/work.h"
#include "unisono/comm/work_state.h"
#include "unisono/engine/native/message.h"
#include "unisono/transport/relayed_error.h"

namespace unisono::comm {
namespace {

// Of each rank. What comes unasked for waits in memory.
constexpr int kPacketsPerListening = 16;

}  // namespace

Messenger::Messenger(const MessengerParts& parts)
    : parts_(parts),
      waiting_{.ranks = parts.ranks,
               .failure = parts.failure,
               .rank = parts.topology.rank(),
               .world_size = parts.topology.world_size(),
               .stall = parts.stall,
               .has_left = [this](int rank)
                               UNISONO_REQUIRES(mutex_) { return messages_.has_left(rank); },
               .look_again = [this]() UNISONO_REQUIRES(mutex_) { take_all(); },
               .is_unreachable = [this](int rank)
                                     UNISONO_REQUIRES(mutex_) { return is_unreachable(rank); },
               .listen = parts.listen,
               .find_parked_tags = [this](int rank) UNISONO_REQUIRES(
                                       mutex_) { return messages_.find_parked_tags(rank); },
               .look_for_cycle = parts.look_for_cycle,
               .waited_since = [waits = parts.work_waits](
                                   const WaitId& work) { return waits->waited_since(work); },
               .show_wait = parts.show_wait,
               .hide_wait = parts.hide_wait},
      out_of_memory_(ErrorCode::kInternal, parts.ranks.prefix() + " is out of memory"),
      messages_(
          {.topology = parts.topology,
           .mailbox = parts.mailbox,
           .mesh = parts.mesh,
           .ranks = parts.ranks,
           // Only one of two ranks on one core can copy at a time.
           .prefers_single_copy = parts.single_copy == SingleCopy::kAlways || !parts.has_cores}) {}

Messenger::~Messenger() {
  finish();
}

bool Messenger::is_unreachable(int rank) {
  const collective::Topology& topology = parts_.topology;
  return topology.node_of(rank) != topology.node() && parts_.mesh.is_unreachable(rank);
}

// What a rank has sent before it left may be more than one look takes. Others may go on sending.
void Messenger::take_all() {
  constexpr int kMostLooks = 1000;
  for (int n = 0; n < kMostLooks && advance(); ++n) {
  }
}

bool Messenger::send_at_once(const MessageCall& call) {
  throw_if_closed();
  const MutexLock lock(mutex_);
  throw_if_stopping();
  return guard([&]() UNISONO_REQUIRES(mutex_) {
    return messages_.send_at_once(call.peer, call.tag, call.buffer, call.label);
  });
}

int Messenger::run(MessageRequest& request) {
  throw_if_closed();
  request.is_attended = true;
  request.thread = this_thread_number();
  const engine::Arrival arrival = spin_for(request);
  if (arrival == engine::Arrival::kReceived) {
    return request.source;
  }
  bool has_ended = false;
  Mode mode{};
  {
    const MutexLock lock(mutex_);
    throw_if_stopping();
    request.id = next_id();
    post(request);
    has_ended = request.has_ended && finished_.empty();
    if (!has_ended) {
      begin_spinning();
      mode = mode_of(request);
      if (arrival == engine::Arrival::kNotYet) {
        mode.n_spins = 0;
      }
    }
  }
  if (!has_ended) {
    drive([&] { return request.has_ended; }, mode);
  }
  if (request.error) [[unlikely]] {
    throw Error(*request.error);
  }
  return request.source;
}

std::vector<Work> Messenger::submit(Requests requests) {
  throw_if_closed();
  std::vector<Work> works;
  Requests finished;
  std::optional<Error> error;
  {
    const MutexLock lock(mutex_);
    throw_if_stopping();
    const bool have_begun = guard([&]() UNISONO_REQUIRES(mutex_) {
      // First of all: without the thread no message must begin.
      start_progress();
      for (std::unique_ptr<MessageRequest>& request : requests) {
        works.push_back(begin(std::move(request)));
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
    settle_failure();
  }
  complete(finished);
  if (error) [[unlikely]] {
    throw Error(*error);
  }
  return works;
}

Work Messenger::begin(std::unique_ptr<MessageRequest> request) {
  request->id = next_id();
  request->state = std::make_shared<WorkState>(request->id, parts_.work_waits);
  if (parts_.checks_buffers) {
    check_buffer(*request);
  }
  Work work(request->state);
  // finish_request() owns it again.
  post(*request.release());
  return work;
}

// From here on, until somebody waits.
void Messenger::check_buffer(MessageRequest& request) const {
  if (request.is_send) {
    request.state->set_check(unchanged_check(request.buffer, name_of(request)));
    return;
  }
  const auto guard = std::make_shared<GuardedReceive>(request.buffer, name_of(request));
  request.buffer = guard->landing();
  request.state->set_check([guard] { guard->deliver(); });
}

// Also tells the other ranks of a failure that was found between two operations.
void Messenger::throw_if_closed() {
  if (parts_.failure.is_set()) [[unlikely]] {
    tell_();
    throw Error(
        ErrorCode::kClosed,
        fmt::format("the process group is closed since: {}", parts_.failure.error().what()));
  }
}

void Messenger::throw_if_stopping() const {
  if (is_stopping_) {
    throw Error(ErrorCode::kClosed, "the process group was destroyed");
  }
}

void Messenger::post(MessageRequest& request) {
  guard([&]() UNISONO_REQUIRES(mutex_) {
    messages_.post(request);
    return true;
  });
  if (!request.has_ended) {
    enroll(request);
    (void)guard([&]() UNISONO_REQUIRES(mutex_) { return messages_.progress(n_networked_ > 0); });
  }
  take_ended();
}

// Moves what can be moved. Returns whether anything was.
bool Messenger::advance() {
  if (parts_.failure.is_set()) [[unlikely]] {
    end_all();
    return true;
  }
  const bool has_moved =
      guard([&]() UNISONO_REQUIRES(mutex_) { return messages_.progress(n_networked_ > 0); });
  take_ended();
  return has_moved;
}

void Messenger::take_ended() {
  if (messages_.ended().empty()) {
    return;
  }
  for (engine::Message* const message : messages_.ended()) {
    finish_request(static_cast<MessageRequest&>(*message));
  }
  messages_.clear_ended();
  show_waits();
}

void Messenger::enroll(MessageRequest& request) {
  request.place = requests_.size();
  requests_.push_back(&request);
  n_async_ += request.state != nullptr ? 1 : 0;
  n_networked_ += needs_network(request) ? 1 : 0;
}

void Messenger::finish_request(MessageRequest& request) {
  if (request.place) {
    have_waits_changed_ = have_waits_changed_ || request.has_waited_long();
    MessageRequest* const last = requests_.back();
    requests_[*request.place] = last;
    last->place = request.place;
    requests_.pop_back();
    n_async_ -= request.state != nullptr ? 1 : 0;
    n_networked_ -= needs_network(request) ? 1 : 0;
  }
  if (request.state != nullptr) {
    finished_.emplace_back(&request);
  }
  if (is_stopping_ && requests_.empty()) {
    changed_.notify_all();
  }
}

std::string Messenger::name_of(const MessageRequest& request) const {
  return fmt::format("{} {}", parts_.ranks.prefix(), describe(request, parts_.ranks.job_ranks()));
}

void Messenger::note(ErrorCode code, const char* problem) noexcept {
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
void Messenger::end_all() {
  const Error error = parts_.failure.error();
  abort_streams(error);
  messages_.abandon();
  error_ = error;
  while (!requests_.empty()) {
    MessageRequest& request = *requests_.back();
    fail_request(request, error_of(request, error));
  }
  show_waits();
}

// The group's, with the call that it ends, where it does not begin with that.
Error Messenger::error_of(const MessageRequest& request, const Error& failure) const noexcept {
  try {
    return transport::with_call(
        parts_.ranks.prefix(), describe(request, parts_.ranks.job_ranks()), failure);
  } catch (const std::exception&) {
    return failure;  // Out of memory, say.
  }
}

void Messenger::fail_request(MessageRequest& request, const Error& error) {
  request.error = error;
  request.has_ended = true;
  finish_request(request);
}

void Messenger::check_requests() {
  // From the back, as checks may end some: then the last takes its place.
  for (std::size_t i = requests_.size(); i-- > 0;) {
    if (i < requests_.size() && !error_) {
      MessageRequest& request = *requests_[i];
      const bool had_waited_long = request.has_waited_long();
      (void)guard([&]() UNISONO_REQUIRES(mutex_) {
        request.check(waiting_);
        return true;
      });
      have_waits_changed_ = have_waits_changed_ || request.has_waited_long() != had_waited_long;
    }
  }
  show_waits();
}

void Messenger::show_waits() {
  if (std::exchange(have_waits_changed_, false)) [[unlikely]] {
    parts_.show_waits(describe_long_waits(requests_, parts_.ranks.job_ranks()));
  }
}

WaitId Messenger::next_id() {
  return {.group = parts_.group, .is_message = true, .sequence = ++n_messages_};
}

template <class IsIt>
std::optional<WaitingReceive> Messenger::find_receive_where(IsIt is_it) {
  const auto found = std::find_if(requests_.begin(), requests_.end(), [&](const auto* request) {
    return request->is_unanswered_receive() && is_it(*request);
  });
  if (found == requests_.end()) {
    return std::nullopt;
  }
  const MessageRequest& request = **found;
  WaitingReceive receive{.id = request.id,
                         .is_for_any = request.peer == engine::kAnyRank,
                         .senders = {},
                         .gone = {},
                         .text = describe(request, parts_.ranks.job_ranks())};
  for (int rank = 0; rank < waiting_.world_size; ++rank) {
    const bool is_other = receive.is_for_any && rank != waiting_.rank;
    if (rank == request.peer || (is_other && request.may_send(rank))) {
      receive.senders.push_back({.rank = rank, .n_arrived = messages_.n_arrived(rank)});
    } else if (is_other) {
      receive.gone.push_back(rank);
    }
  }
  return receive;
}

std::optional<WaitingReceive> Messenger::find_receive_of(std::uint64_t thread) {
  const MutexLock lock(mutex_);
  return find_receive_where([thread](const auto& request) { return request.thread == thread; });
}

std::optional<WaitingReceive> Messenger::find_receive(const WaitId& id) {
  const MutexLock lock(mutex_);
  return find_receive_where([&id](const auto& request) { return request.id == id; });
}

std::uint64_t Messenger::n_sent(int rank) {
  const MutexLock lock(mutex_);
  return messages_.n_sent(rank);
}

void Messenger::wake() const noexcept {
  parts_.mailbox.wake();
  parts_.mesh.wake();
}

void Messenger::on_failure(std::function<void()> tell) {
  const MutexLock lock(mutex_);
  tell_ = std::move(tell);
}

void Messenger::listen() noexcept {
  std::optional<Error> error;
  {
    const MutexLock lock(mutex_);
    if (is_stopping_ || !tell_) {
      return;
    }
    is_listening_ = true;
    // Else somebody else looks, or there is nothing to hear any more.
    const bool must_look = n_networked_ == 0 && !is_settling_ && !parts_.failure.is_set();
    for (int n = 0; must_look && n < kPacketsPerListening; ++n) {
      const bool has_moved =
          guard([&]() UNISONO_REQUIRES(mutex_) { return messages_.progress_between_nodes(); });
      if (!has_moved) {
        break;
      }
    }
    error = must_look ? error_ : std::nullopt;
  }
  if (error) {
    (void)parts_.failure.set(*error);
  }
  if (parts_.failure.is_set()) {
    tell_();
  }
  {
    const MutexLock lock(mutex_);
    is_listening_ = false;
  }
  changed_.notify_all();
}

}  // namespace unisono::comm
