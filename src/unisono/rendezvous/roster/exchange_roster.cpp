#include "unisono/rendezvous/roster/exchange_roster.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/random_hex.h"
#include "unisono/base/release.h"
#include "unisono/net/hello.h"
#include "unisono/rendezvous/roster/node_id.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/rendezvous/roster/roster_check.h"
#include "unisono/rendezvous/roster/roster_codec.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_server.h"

namespace unisono::rendezvous {
namespace {

// Who was first to ask writes it down at once, unless it dies.
constexpr std::chrono::seconds kPatienceForAnother{1};

// Who does not look by then what has become of the meeting was killed.
constexpr std::chrono::seconds kPatienceForReaders{2};

// Of a job's random name.
constexpr std::size_t kJobBytes = 16;

// The keys of one meeting:
//   members   everybody's entry, appended
//   common    version and world size of who came first
//   rank/R    who came first as rank R
//   count     how many have come
//   ready     what all look at: a job name and the members; or no name, and why it can't succeed
//   published there once the members are under ready
//   seen      how many have read that it can't succeed
//   all seen  there once all who have come have read that
//   given up  there once somebody has waited in vain and left
//   absent/N  while N have come: who has not, if somebody wanted to know
std::string prefix_of(const ExchangeOptions& options) {
  return fmt::format("unisono/{}/", options.generation);
}

std::string rank_key(const ExchangeOptions& options, int rank) {
  return fmt::format("{}rank/{}", prefix_of(options), rank);
}

bool is_there(store::Store& store, const std::string& key) {
  return store.check(std::span(&key, 1));
}

Entry entry_of(const Member& member) {
  return {.version = net::kProtocolVersion,
          .release = release(),
          .nonce = random_number(),
          .member = member};
}

// What all who meet have to agree on.
std::string common_of(const Entry& entry) {
  return fmt::format("{}, world size {}", describe_version(entry), entry.member.world_size);
}

class Meeting {
 public:
  Meeting(store::Store& store, const Member& self, const ExchangeOptions& options)
      : store_(store), options_(options), self_(entry_of(self)), prefix_(prefix_of(options)) {}

  // Tells the others why this rank does not take part.
  void fail(const std::string& reason) { store_.compare_set(key("ready"), "", failure(reason)); }

  // Whoever completes the meeting, or sees that it can't succeed, publishes what there is.
  void join() {
    store_.set_at_end(key("ready"),
                      failure("joined, but ended before all ranks had come; see what it wrote"));
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
        fmt::format("rendezvous: has the addresses of all {} ranks; its own is {} port {}",
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
      store_.set_at_end(key("ready"), "");  // The others hear from who is missing.
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
      // Who has ended does not read it.
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
                  .members = std::vector<Member>(entries->size())};
    for (Entry& entry : *entries) {
      Member& place = roster.members.at(static_cast<std::size_t>(entry.member.rank));
      place = std::move(entry.member);
    }
    return roster;
  }

  // The store may be one that ends with this process, and who was started a little later looks for
  // it until its time is up.
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
      // The store is gone, or somebody was killed: what the roster says counts.
    }
  }

  // Who comes when the roster is full is not in it.
  void check_self(const std::vector<Entry>& entries) const {
    for (const Entry& entry : entries) {
      if (entry.nonce == self_.nonce) {
        return;
      }
    }
    std::string holder;
    for (const Entry& entry : entries) {
      if (entry.member.rank == self_.member.rank) {
        holder = ": " + describe(entry.member) + " was here before";
      }
    }
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("rendezvous: all {} ranks have come already, without {}{}{}",
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

  // Thousands of ranks wait at the same time, and the members of so many are megabytes: one of them
  // writes down who is absent, for as long as nobody comes.
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
                       const Member& self,
                       Deadline deadline,
                       const ExchangeOptions& options) {
  Meeting meeting(store, self, options);
  meeting.join();
  return meeting.wait(deadline);
}

void fail_roster(store::Store& store,
                 const Member& self,
                 const std::string& reason,
                 const ExchangeOptions& options) noexcept {
  try {
    Meeting(store, self, options).fail(reason);
  } catch (const std::exception&) {
    return;  // The store is gone, and the meeting with it.
  }
}

bool wait_for_twin(store::Store& store,
                   const Member& self,
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
