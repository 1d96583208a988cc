#include "unisono/rendezvous/roster/exchange_roster.h"

#include <fmt/format.h>

#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/base/error.h"
#include "unisono/base/process.h"
#include "unisono/base/text.h"
#include "unisono/net/hello.h"
#include "unisono/rendezvous/this_node.h"
#include "unisono/store/tcp_store.h"

namespace unisono::rendezvous {
namespace {

// The first rank that asks writes the list at once, unless it is killed.
constexpr std::chrono::seconds kPatienceForAnother{1};

// A rank that has not read the result of the meeting within this time was probably killed.
constexpr std::chrono::seconds kPatienceForReaders{2};

// Bytes of a job's random name.
constexpr std::size_t kJobBytes = 16;

// Keys of a meeting:
//
//   members   the entries of all ranks, appended
//   common    version and world size of the first rank that joined
//   rank/R    the first process that joined as rank R
//   count     number of ranks that have joined
//   ready     read by all ranks: a job name and the members; or no name, and the reason of failure
//   published set once the members are under ready
//   seen      number of ranks that have read the failure
//   all seen  set once all ranks that have joined have read the failure
//   given up  set once a rank has left after waiting without success
//   absent/N  while N ranks have joined: the missing ranks, if a rank has asked
std::string prefix_of(const ExchangeOptions& options) {
  return fmt::format("unisono/{}/", options.generation);
}

std::string rank_key(const ExchangeOptions& options, int rank) {
  return fmt::format("{}rank/{}", prefix_of(options), rank);
}

bool is_there(store::Store& store, const std::string& key) {
  return store.check(std::span(&key, 1));
}

Entry entry_of(const RosterMember& member) {
  return {.version = net::kProtocolVersion,
          .release = release(),
          .nonce = random_number(),
          .member = member};
}

// Values on which all ranks must agree.
std::string common_of(const Entry& entry) {
  return fmt::format("{}, world size {}", describe_version(entry), entry.member.world_size);
}

class Meeting {
 public:
  Meeting(store::Store& store, const RosterMember& self, const ExchangeOptions& options)
      : store_(store), options_(options), self_(entry_of(self)), prefix_(prefix_of(options)) {}

  // Publishes the reason why this rank does not take part.
  void fail(const std::string& reason) { store_.compare_set(key("ready"), "", failure(reason)); }

  // The rank that completes the meeting, or that finds a contradiction, publishes the members.
  void join() {
    store_.set_at_end(key("ready"),
                      failure("joined, but ended before all ranks had joined; see its output"));
    store_.append(key("members"), encode_entry(self_));
    const std::string common = common_of(self_);
    const std::string name = std::to_string(self_.nonce);
    const bool is_common = store_.compare_set(key("common"), "", common) == common;
    const bool is_first =
        store_.compare_set(rank_key(options_, self_.member.rank), "", name) == name;
    const std::int64_t n_members = store_.add(key("count"), 1);
    if (!is_common || !is_first || n_members == self_.member.world_size) {
      publish();
    }
  }

  Roster wait(Deadline deadline) {
    Roster roster = read(wait_until_ready(deadline));
    options_.logger.debug(
        fmt::format("rendezvous: received the addresses of all {} ranks; own address: {} port {}",
                    roster.world_size(),
                    self_.member.address,
                    self_.member.port));
    return roster;
  }

 private:
  [[nodiscard]] std::string key(const std::string& name) const { return prefix_ + name; }

  std::string wait_until_ready(Deadline deadline) {
    try {
      return get_ready(deadline);
    } catch (const Error&) {
      give_up();
      throw;
    }
  }

  [[nodiscard]] std::string failure(const std::string& reason) const {
    return encode_ready("", fmt::format("rendezvous: {} {}", describe(self_.member), reason));
  }

  static std::string encode_ready(const std::string& job, const std::string& content) {
    ByteWriter value;
    value.put_string(job);
    value.put_string(content);
    return {reinterpret_cast<const char*>(value.bytes().data()), value.bytes().size()};
  }

  std::string get_ready(Deadline deadline) {
    const auto start = Deadline::Clock::now();
    for (auto patience = options_.stall;; patience *= 2) {
      const Deadline next = earlier(deadline, Deadline::at(start + patience));
      try {
        return store_.get(key("ready"), next);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kTimeout) {
          throw;
        }
      }
      const std::string message = describe_wait(start);
      if (deadline.has_passed()) {
        throw Error(ErrorCode::kTimeout, message);
      }
      options_.logger.warning(message);
    }
  }

  void give_up() noexcept {
    try {
      store_.set(key("given up"), "");
      // Withdrawn: the error of the other ranks must name the missing ranks instead of this rank.
      store_.set_at_end(key("ready"), "");
    } catch (const std::exception&) {
      return;  // The store is gone, and the meeting with it.
    }
  }

  void publish() {
    store_.set(key("published"), "");
    store_.compare_set(
        key("ready"),
        "",
        encode_ready(random_hex(kJobBytes), store_.try_get(key("members")).value_or("")));
  }

  [[nodiscard]] Roster read(const std::string& ready) {
    constexpr std::size_t kMaxJobBytes = 4 * kJobBytes;
    ByteReader reader(std::as_bytes(std::span(ready)));
    std::optional<std::string> job = reader.get_string(kMaxJobBytes);
    const std::optional<std::string_view> members =
        job ? reader.get_string_view(ready.size()) : std::nullopt;
    if (members && job->empty()) {
      // The rank that has ended does not read the failure.
      wait_for_readers(static_cast<std::size_t>(self_.member.world_size) - 1);
      throw Error(ErrorCode::kSystem, std::string(*members));
    }
    std::optional<std::vector<Entry>> entries = members ? decode_entries(*members) : std::nullopt;
    if (!entries) {
      throw Error(ErrorCode::kCorruptData,
                  "rendezvous: the roster in the store is malformed; is another job using it?");
    }
    if (const std::optional<Error> problem =
            find_problem(*entries, options_.place, options_.from_variables)) {
      wait_for_readers(entries->size() + count_missing(*entries));
      throw Error(*problem);
    }
    check_self(*entries);
    Roster roster{.rank = self_.member.rank,
                  .job = std::move(*job),
                  .members = std::vector<RosterMember>(entries->size())};
    for (Entry& entry : *entries) {
      RosterMember& place = roster.members.at(static_cast<std::size_t>(entry.member.rank));
      place = std::move(entry.member);
    }
    return roster;
  }

  // The store may end with this process, and a rank that started a little later would search for
  // the store until the deadline.
  void wait_for_readers(std::size_t n_readers) {
    try {
      const std::string all_seen = key("all seen");
      if (store_.add(key("seen"), 1) == static_cast<std::int64_t>(n_readers)) {
        store_.set(all_seen, "");
      }
      store_.wait(std::span(&all_seen, 1), Deadline::after(kPatienceForReaders));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInterrupted) {
        throw;
      }
      // The store is gone, or a rank was killed: the error from the roster counts.
    }
  }

  // A rank that joins after the roster is full is not a member.
  void check_self(const std::vector<Entry>& entries) const {
    for (const Entry& entry : entries) {
      if (entry.nonce == self_.nonce) {
        return;
      }
    }
    std::string holder;
    for (const Entry& entry : entries) {
      if (entry.member.rank == self_.member.rank) {
        holder = ": " + describe(entry.member) + " joined before";
      }
    }
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("rendezvous: all {} ranks have joined already, without {}{}{}",
                    entries.size(),
                    describe(self_.member),
                    holder,
                    options_.place.empty() ? "" : "; another job may use " + options_.place));
  }

  [[nodiscard]] std::string describe_wait(Deadline::Clock::time_point start) {
    const std::chrono::duration<double> spent = Deadline::Clock::now() - start;
    store::Store& whole = options_.whole_store == nullptr ? store_ : *options_.whole_store;
    const std::optional<std::string> rejected_connections = whole.try_get(store::kTurnedAwayKey);
    return fmt::format("rendezvous: rank {} has waited {:.1f} s for {}{}",
                       self_.member.rank,
                       spent.count(),
                       describe_absent(),
                       rejected_connections ? "; " + *rejected_connections : "");
  }

  // Thousands of ranks wait at the same time, and the entries of so many ranks are megabytes. A
  // single rank therefore writes down the missing ranks each time the number of joined ranks has
  // changed.
  [[nodiscard]] std::string describe_absent() {
    const std::string name = key("absent/" + store_.try_get(key("count")).value_or("0"));
    if (store_.add(name + "/asked", 1) > 1) {
      try {
        return store_.get(name, Deadline::after(kPatienceForAnother));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kTimeout) {
          throw;
        }
      }
    }
    const std::string members = store_.try_get(key("members")).value_or("");
    const std::vector<Entry> entries = decode_entries(members).value_or(std::vector<Entry>());
    std::string text = fmt::format("{} ({} of {} joined)",
                                   describe_missing(entries, self_.member.world_size),
                                   entries.size(),
                                   self_.member.world_size);
    store_.set(name, text);
    return text;
  }

  store::Store& store_;
  ExchangeOptions options_;
  Entry self_;
  std::string prefix_;
};

}  // namespace

Roster exchange_roster(store::Store& store,
                       const RosterMember& self,
                       Deadline deadline,
                       const ExchangeOptions& options) {
  Meeting meeting(store, self, options);
  meeting.join();
  return meeting.wait(deadline);
}

void fail_roster(store::Store& store,
                 const RosterMember& self,
                 const std::string& reason,
                 const ExchangeOptions& options) noexcept {
  try {
    Meeting(store, self, options).fail(reason);
  } catch (const std::exception&) {
    return;  // The store is gone, and the meeting with it.
  }
}

bool wait_for_twin(store::Store& store,
                   const RosterMember& self,
                   Deadline deadline,
                   const ExchangeOptions& options) {
  const std::string key = rank_key(options, self.rank);
  try {
    store.wait(std::span(&key, 1), deadline);
    return store.try_get(prefix_of(options) + "common") == common_of(entry_of(self));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kTimeout) {
      throw;
    }
    return false;
  }
}

MeetingState find_state(store::Store& store, const ExchangeOptions& options) {
  const std::string prefix = prefix_of(options);
  if (is_there(store, prefix + "ready")) {
    return is_there(store, prefix + "published") ? MeetingState::kOver : MeetingState::kGivenUp;
  }
  return is_there(store, prefix + "given up") ? MeetingState::kGivenUp : MeetingState::kOpen;
}

}  // namespace unisono::rendezvous
