#include "unisono/health/status_client.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/health/group_contacts.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/frame.h"
#include "unisono/transport/rank_address.h"

namespace unisono::health {
namespace {

// A watcher has nothing else to do.
constexpr std::chrono::milliseconds kAnswerTimeout{1000};

// Where an error waits for the answer.
constexpr std::chrono::milliseconds kShortTimeout{100};

// Where all are late, the first of them say enough.
constexpr std::size_t kMaxRanks = 4;

constexpr const char* kHasLeft = "is running, but has left this group";

void name_thread() {
  ::pthread_setname_np(::pthread_self(), "unisono-inquiry");
}

}  // namespace

StatusClient::StatusClient(
    const GroupContacts& contacts,
    std::function<bool(int rank)> is_on_node,
    std::function<void(int rank, const transport::Departure& departure)> note_departure,
    std::function<void(int rank, const Error& reason)> note_reason,
    std::function<void(int rank, const transport::RankProgress& rank_progress)> note_rank_progress,
    std::string prefix,
    Logger logger)
    : members_(addresses_of(contacts.roster)),
      job_ranks_(transport::where_they_differ(transport::job_ranks_of(members_))),
      is_on_node_(std::move(is_on_node)),
      note_departure_(std::move(note_departure)),
      note_reason_(std::move(note_reason)),
      note_standing_(std::move(note_rank_progress)),
      secret_(contacts.secret),
      mine_(contacts.hello(kStatusPurpose)),
      prefix_(std::move(prefix)),
      logger_(std::move(logger)) {}

StatusClient::~StatusClient() {
  finish();
}

void StatusClient::ask(int rank) noexcept {
  const MutexLock lock(mutex_);
  const bool is_asked = std::find(ranks_.begin(), ranks_.end(), rank) != ranks_.end();
  if (is_finished_ || is_asked || ranks_.size() >= kMaxRanks) {
    return;
  }
  try {
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { work_off(); });
    }
    ranks_.push_back(rank);
    changed_.notify_all();
  } catch (const std::exception& error) {
    logger_.debug(fmt::format("{} can't ask {}: {}",
                              prefix_,
                              members_[static_cast<std::size_t>(rank)].name,
                              error.what()));
  }
}

void StatusClient::finish() noexcept {
  std::thread thread;
  {
    const MutexLock lock(mutex_);
    is_finished_ = true;
    thread = std::move(thread_);
  }
  changed_.notify_all();
  if (thread.joinable()) {
    thread.join();
  }
}

void StatusClient::work_off() {
  name_thread();
  while (true) {
    int rank = -1;
    {
      const MutexLock lock(mutex_);
      while (ranks_.empty() && !is_finished_) {
        changed_.wait(mutex_);
      }
      if (is_finished_) {
        return;
      }
      rank = ranks_.front();
    }
    const std::string& name = members_[static_cast<std::size_t>(rank)].name;
    const std::string does = inquire(rank, kAnswerTimeout);
    if (!does.empty()) {
      logger_.warning(fmt::format("{} {} {}", prefix_, name, does));
    }
    const MutexLock lock(mutex_);
    std::erase(ranks_, rank);
  }
}

std::map<int, std::string> StatusClient::hear(std::span<const int> ranks) {
  std::map<int, std::string> answers;
  for (const int rank : ranks.first(std::min(ranks.size(), kMaxRanks))) {
    answers.try_emplace(rank);
  }
  std::vector<std::jthread> threads;
  try {
    for (auto& [rank, answer] : answers) {
      threads.emplace_back([this, rank = rank, &answer = answer] {
        name_thread();
        answer = inquire(rank, kShortTimeout);
      });
    }
  } catch (const std::exception& error) {
    logger_.debug(fmt::format("{} can't ask what ranks do: {}", prefix_, error.what()));
  }
  threads.clear();
  return answers;
}

// What follows the rank's name; "" for nothing.
std::string StatusClient::inquire(int rank, std::chrono::milliseconds timeout) {
  const transport::RankAddress& member = members_[static_cast<std::size_t>(rank)];
  const Deadline deadline = Deadline::after(timeout);
  bool has_met = false;
  try {
    if (!is_on_node_(rank) && net::is_refused(member.address, deadline)) {
      return "has left, or is gone";
    }
    const Fd socket = net::connect_tcp(member.address, deadline);
    (void)net::connect_hello(socket.get(), secret_, mine_, deadline);
    has_met = true;
    transport::FrameBytes bytes{};
    net::read_exact(socket.get(), bytes, deadline, member.name);
    const std::optional<transport::Frame> frame = transport::decode(bytes);
    if (frame && frame->kind == transport::FrameKind::kRankProgress) {
      std::vector<std::byte> texts(frame->n_bytes);
      net::read_exact(socket.get(), texts, deadline, member.name);
      return describe_answer(rank, transport::decode_rank_progress(*frame, texts));
    }
    if (frame && frame->kind == transport::FrameKind::kAbort) {
      std::vector<std::byte> text(frame->n_bytes);
      net::read_exact(socket.get(), text, deadline, member.name);
      const Error reason = transport::decode_abort(*frame, text);
      note_reason_(rank, reason);
      return fmt::format("gave up: {}", reason.what());
    }
    if (is_on_node_(rank)) {
      return "";
    }
    if (frame && frame->kind == transport::FrameKind::kLeave) {
      note_departure_(rank, transport::decode_departure(*frame));
      return kHasLeft;
    }
    return "is about to give up, or to leave";
  } catch (const Error& error) {
    if (is_on_node_(rank)) {
      return describe_silence_here(rank);
    }
    // Its watcher knows this group no more.
    if (has_met && error.code() == ErrorCode::kPeerLost) {
      return kHasLeft;
    }
    return error.code() == ErrorCode::kTimeout
               ? describe_silence(rank, timeout)
               : fmt::format("can't be asked what it does: {}", error.what());
  }
}

std::string StatusClient::describe_answer(int rank, const transport::RankProgress& rank_progress) {
  const bool is_here = is_on_node_(rank);
  if (!is_here) {
    note_standing_(rank, rank_progress);
  }
  const std::string does =
      is_here ? rank_progress.elsewhere : transport::describe(rank_progress, job_ranks_);
  const MutexLock lock(mutex_);
  last_answers_.insert_or_assign(rank, does);
  return is_here ? does : fmt::format("is running and {}", does);
}

std::string StatusClient::describe_silence_here(int rank) {
  const MutexLock lock(mutex_);
  const auto before = last_answers_.find(rank);
  return before == last_answers_.end() || before->second.empty()
             ? ""
             : fmt::format("as it said before, {}", before->second);
}

std::string StatusClient::describe_silence(int rank, std::chrono::milliseconds timeout) {
  const MutexLock lock(mutex_);
  const auto before = last_answers_.find(rank);
  return fmt::format(
      "does not answer within {} s: its process may be stopped or gone, or its machine out of "
      "reach{}",
      std::chrono::duration<double>(timeout).count(),
      before == last_answers_.end() ? ""
                                    : fmt::format("; before, it said that it {}", before->second));
}

}  // namespace unisono::health
