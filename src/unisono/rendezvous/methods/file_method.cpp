#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/process.h"
#include "unisono/base/thread.h"
#include "unisono/net/address.h"
#include "unisono/net/hello.h"
#include "unisono/net/host.h"
#include "unisono/net/ports.h"
#include "unisono/rendezvous/methods/builtin_methods.h"
#include "unisono/rendezvous/methods/discovery.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/rendezvous/this_node.h"
#include "unisono/store/file_store.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;

// Resources of a process until all have met at the store: the file, with a claimed number, and a
// reserved port for the store.
class FilePresence {
 public:
  FilePresence(const std::string& path, const base::Config& config, Deadline deadline)
      : store_({.path = path}, deadline),
        address_(
            choose_own_address(config.interface, net::interfaces(), net::default_route_address())),
        port_(reserve_store_port(config, address_.family())) {
    do {
      number_ = static_cast<std::uint32_t>(random_number());
    } while (!store_.claim(number_));
  }

  ~FilePresence() {
    try {
      store_.leave();
    } catch (const std::exception&) {
      return;  // Another process has deleted the file, or the next job will.
    }
  }

  FilePresence(const FilePresence&) = delete;
  FilePresence& operator=(const FilePresence&) = delete;
  FilePresence(FilePresence&&) = delete;
  FilePresence& operator=(FilePresence&&) = delete;

  [[nodiscard]] store::FileStore& store() { return store_; }

  [[nodiscard]] std::uint32_t number() const { return number_; }

  /// Address of this process's store if it becomes rank 0.
  [[nodiscard]] std::string ip() const { return address_.ip(); }

  [[nodiscard]] std::uint16_t port() const { return port_.port(); }

 private:
  store::FileStore store_;
  net::Address address_;
  net::PortReservation port_;
  std::uint32_t number_ = 0;
};

// Returns true if there are as many entries as the first entry's world size.
bool is_full(const std::vector<Entry>& entries) {
  return !entries.empty() &&
         entries.size() >= static_cast<std::size_t>(entries.front().member.world_size);
}

// Assigns the lowest unrequested ranks to entries without a rank (-1), in the order of arrival.
std::vector<Entry> give_out_ranks(std::vector<Entry> entries) {
  std::set<int> taken;
  for (const Entry& entry : entries) {
    taken.insert(entry.member.rank);
  }
  int next = 0;
  for (Entry& entry : entries) {
    if (entry.member.rank >= 0) {
      continue;
    }
    while (taken.contains(next)) {
      ++next;
    }
    entry.member.rank = next++;
  }
  return entries;
}

// The processes of a group_name in the file, with these keys:
//
//   GROUP/current   the number of the job that can be joined
//   GROUP/NUMBER    that job's entries, appended; the nonce is the number claimed by the process
class FileDiscovery {
 public:
  FileDiscovery(const DiscoveryRequest& request, const RankRequest& wanted, FilePresence& presence)
      : request_(request),
        store_(presence.store()),
        prefix_("rendezvous/" + wanted.group_name + "/"),
        self_{.version = net::kProtocolVersion,
              .release = release(),
              .nonce = presence.number(),
              .member = {.rank = wanted.rank.value_or(-1),
                         .world_size = wanted.world_size,
                         .host = host_name(),
                         .pid = ::getpid(),
                         .node = node_id(request.config),
                         .address = presence.ip(),
                         .port = presence.port(),
                         .endpoint = ""}} {}

  // Waits for all processes. Returns the job's entries with their ranks, in the order of arrival.
  std::vector<Entry> gather() {
    while (!join()) {
      if (request_.deadline.has_passed()) {
        throw Error(ErrorCode::kTimeout,
                    fmt::format("rendezvous: at {}: other processes changed the file all the time",
                                request_.method.text));
      }
    }
    const base::Logger logger("rendezvous", request_.config.log_level);
    const auto start = Deadline::Clock::now();
    auto patience = request_.config.stall;
    for (milliseconds pause(1);; pause = std::min(pause * 2, milliseconds(50))) {
      std::vector<Entry> entries = give_out_ranks(read(key_));
      if (const std::optional<Error> problem = find_problem(entries)) {
        throw Error(problem->code(),
                    fmt::format("{} (init_method \"{}\")", problem->what(), request_.method.text));
      }
      if (is_full(entries)) {
        return entries;
      }
      const std::chrono::duration<double> spent = Deadline::Clock::now() - start;
      if (request_.deadline.has_passed()) {
        throw Error(ErrorCode::kTimeout, describe(spent));
      }
      if (spent > patience) {
        logger.warning(describe(spent));
        patience *= 2;
      }
      interruptible_sleep_until(earlier(Deadline::after(pause), request_.deadline));
    }
  }

 private:
  // Returns false if other processes changed the file meanwhile: the caller must try again.
  bool join() {
    const std::string current = store_.try_get(prefix_ + "current").value_or("");
    key_ = prefix_ + current;
    if (current.empty() || is_full(read(key_))) {
      store_.compare_set(prefix_ + "current", current, fmt::format("{:016x}", random_number()));
      return false;
    }
    if (!remove_those_that_have_ended()) {
      return false;
    }
    store_.append(key_, encode_entry(self_));
    const std::vector<Entry> entries = read(key_);
    return std::any_of(entries.begin(), entries.end(), [this](const Entry& entry) {
      return entry.nonce == self_.nonce;
    });
  }

  bool remove_those_that_have_ended() {
    const std::string before = store_.try_get(key_).value_or("");
    std::string after;
    for (const Entry& entry : decode(before)) {
      if (is_there(entry)) {
        after += encode_entry(entry);
      }
    }
    return after == before || store_.compare_set(key_, before, after) == after;
  }

  bool is_there(const Entry& entry) {
    return entry.nonce == self_.nonce || store_.is_claimed(static_cast<std::uint32_t>(entry.nonce));
  }

  // Returns the entries of participants. Entries that arrived when the job was complete are
  // dropped.
  std::vector<Entry> read(const std::string& key) {
    std::vector<Entry> entries = decode(store_.try_get(key).value_or(""));
    if (is_full(entries)) {
      entries.resize(static_cast<std::size_t>(entries.front().member.world_size));
    }
    return entries;
  }

  [[nodiscard]] std::vector<Entry> decode(const std::string& text) const {
    std::optional<std::vector<Entry>> entries = decode_entries(text);
    if (!entries) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("init_method \"{}\": the file does not hold processes that meet; "
                              "name one that does not exist yet",
                              request_.method.text));
    }
    return *entries;
  }

  std::string describe(std::chrono::duration<double> spent) {
    std::vector<std::string> names;
    for (const Entry& entry : read(key_)) {
      names.push_back(fmt::format("pid {} on {}{}",
                                  entry.member.pid,
                                  entry.member.host,
                                  is_there(entry) ? "" : " (which has ended)"));
    }
    return fmt::format("rendezvous: at {} for {:.1f} s: {} of {} processes are here: {}",
                       request_.method.text,
                       spent.count(),
                       names.size(),
                       self_.member.world_size,
                       fmt::join(names, ", "));
  }

  const DiscoveryRequest& request_;
  store::FileStore& store_;
  std::string prefix_;
  std::string key_;  // Key of the job that this process has joined or tries to join.
  Entry self_;
};

LaunchInfo assignment_of(const std::vector<Entry>& entries, std::uint32_t number) {
  LaunchInfo launch_info;
  launch_info.world_size = static_cast<int>(entries.size());
  launch_info.is_on_one_node = std::all_of(entries.begin(), entries.end(), [&](const Entry& entry) {
    return entry.member.node == entries.front().member.node;
  });
  for (const Entry& entry : entries) {
    if (entry.nonce == number) {
      launch_info.rank = entry.member.rank;
    }
    if (entry.member.rank == 0) {
      launch_info.master_addr = entry.member.address;
      launch_info.master_port = entry.member.port;
    }
  }
  return launch_info;
}

std::string path_of(const InitMethod& method) {
  if (!method.host.empty() || method.port || method.path.size() < 2) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("init_method \"{}\": it needs an absolute path, after three slashes, as "
                    "file:///nfs/jobs/one",
                    method.text));
  }
  return method.path;
}

}  // namespace

Discovered discover_by_file(const DiscoveryRequest& request) {
  const RankRequest wanted = read_rank_request(request.method, request.given);
  const std::string path = path_of(request.method);
  while (true) {
    try {
      auto presence = std::make_shared<FilePresence>(path, request.config, request.deadline);
      const std::vector<Entry> entries = FileDiscovery(request, wanted, *presence).gather();
      return {.launch_info = assignment_of(entries, presence->number()), .presence = presence};
    } catch (const Error& error) {
      // The last process of an earlier job has just deleted the file.
      if (error.code() != ErrorCode::kPeerLost || request.deadline.has_passed()) {
        throw;
      }
    }
  }
}

}  // namespace unisono::rendezvous
