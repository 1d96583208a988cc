#include "rendezvous_generation.h"

#include <cstdint>
#include <memory>
#include <string>

#include "unisono/base/error.h"
#include "unisono/rendezvous/roster/exchange_roster.h"
#include "unisono/store/store.h"

namespace unisono::python {
namespace {

using rendezvous::MeetingState;

std::string prefix_of(const std::string& name, std::int64_t number) {
  return name + "/" + std::to_string(number);
}

// Returns a non-owning pointer to a store that outlives the call, because PrefixStore takes shared
// ownership.
std::shared_ptr<store::Store> borrowed(store::Store& store) {
  return {std::shared_ptr<void>(), &store};
}

}  // namespace

RendezvousGeneration find_generation(store::Store& store, const std::string& name, int rank) {
  const auto state_of = [&](std::int64_t number) {
    store::PrefixStore part(prefix_of(name, number), borrowed(store));
    return rendezvous::find_state(part);
  };
  const std::string times = name + "/times/" + std::to_string(rank);
  const std::int64_t count = store.add(times, 1);
  std::int64_t number = count;
  while (number > 1 && state_of(number - 1) == MeetingState::kOpen) {
    --number;
  }
  while (state_of(number) == MeetingState::kGivenUp) {
    store.add(times, 1);
    ++number;
  }
  return {.prefix = prefix_of(name, number), .rank = rank, .is_known = count > 1};
}

RendezvousGeneration first_generation(const std::string& name, int rank) {
  return {.prefix = prefix_of(name, 1), .rank = rank, .is_known = true};
}

Error explained(const Error& error, const RendezvousGeneration& time) {
  if (error.code() != ErrorCode::kTimeout || !time.is_known) {
    return error;
  }
  const std::string rank = std::to_string(time.rank);
  return {error.code(),
          error.what() + std::string("; a rank ") + rank +
              " has been in this store before: if that is another process, and still runs, rank " +
              rank + " was given twice"};
}

}  // namespace unisono::python
