#include "unisono/comm/inquirer.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/tcp/frame.h"
#include "unisono/transport/tcp/mesh.h"

namespace unisono::comm {
namespace {

// A watcher has nothing else to do.
constexpr std::chrono::seconds kAnswerTimeout{1};

// Where all are late, the first of them say enough.
constexpr std::size_t kMaxRanks = 4;

}  // namespace

Inquirer::Inquirer(std::vector<tcp::MeshMember> members,
                   std::string secret,
                   net::HelloInfo mine,
                   std::string prefix,
                   Logger logger)
    : members_(std::move(members)),
      secret_(std::move(secret)),
      mine_(std::move(mine)),
      prefix_(std::move(prefix)),
      logger_(std::move(logger)) {}

Inquirer::~Inquirer() {
  finish();
}

void Inquirer::ask(int rank) noexcept {
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
    logger_.debug(fmt::format("{} can't ask rank {}: {}", prefix_, rank, error.what()));
  }
}

void Inquirer::finish() noexcept {
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

void Inquirer::work_off() {
  ::pthread_setname_np(::pthread_self(), "unisono-inquiry");
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
    const tcp::MeshMember& member = members_[static_cast<std::size_t>(rank)];
    logger_.warning(fmt::format("{} {} {}", prefix_, member.name, inquire(member)));
    const MutexLock lock(mutex_);
    std::erase(ranks_, rank);
  }
}

// What follows the rank's name.
std::string Inquirer::inquire(const tcp::MeshMember& member) const {
  const Deadline deadline = Deadline::after(kAnswerTimeout);
  try {
    if (net::is_refused(member.address, deadline)) {
      return "has left, or is gone";
    }
    const Fd socket = net::connect_tcp(member.address, deadline);
    (void)net::connect_hello(socket.get(), secret_, mine_, deadline);
    tcp::FrameBytes bytes{};
    net::read_exact(socket.get(), bytes, deadline, member.name);
    const std::optional<tcp::Frame> frame = tcp::decode(bytes);
    if (frame && frame->kind == tcp::FrameKind::kStanding) {
      std::vector<std::byte> refused(frame->n_bytes);
      net::read_exact(socket.get(), refused, deadline, member.name);
      return fmt::format("is running and {}",
                         transport::describe(tcp::decode_standing(*frame, refused)));
    }
    return "is about to give up, or to leave";
  } catch (const Error& error) {
    return error.code() == ErrorCode::kTimeout
               ? fmt::format(
                     "does not answer within {} s: its process is stopped or gone, or "
                     "its machine can't be reached",
                     kAnswerTimeout.count())
               : fmt::format("can't be asked what it does: {}", error.what());
  }
}

}  // namespace unisono::comm
