#include "unisono/engine/native/collectives/local_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/transport/descriptor.h"

namespace unisono::engine {
namespace {

using shm::Exposure;

// Data for several takers is staged above this size: staging copies the data once for all takers,
// and brings it into a cache.
constexpr std::int64_t kMostForMany = 128 << 10;

// One-sided transfers are staged above this size, so that giver and taker work at the same time.
constexpr std::int64_t kMostOneSided = 1 << 20;

template <class Bytes>
std::int64_t n_bytes_of(const Pieces<Bytes>& pieces) {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    sum += pieces[i].size();
  }
  return static_cast<std::int64_t>(sum);
}

// Calls `visit(part, at)` for the parts of `pieces` that cover bytes begin, ..., begin + n - 1;
// `at` counts from begin.
template <class Bytes, class Visit>
void for_each_part(const Pieces<Bytes>& pieces,
                   std::int64_t begin,
                   std::int64_t n_bytes,
                   Visit visit) {
  std::int64_t at = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Bytes piece = pieces[i];
    const auto size = static_cast<std::int64_t>(piece.size());
    const std::int64_t skipped = std::min(begin, size);
    const std::int64_t n_part = std::min(size - skipped, n_bytes - at);
    if (n_part > 0) {
      visit(piece.subspan(static_cast<std::size_t>(skipped), static_cast<std::size_t>(n_part)), at);
      at += n_part;
    }
    begin -= skipped;
  }
}

void copy_out(const LocalTransfers::Source& from,
              std::int64_t begin,
              std::int64_t n_bytes,
              std::byte* to) {
  for_each_part(from, begin, n_bytes, [to](std::span<const std::byte> part, std::int64_t at) {
    std::memcpy(to + at, part.data(), part.size());
  });
}

void copy_in(const std::byte* from,
             const LocalTransfers::Sink& to,
             std::int64_t begin,
             std::int64_t n_bytes) {
  for_each_part(to, begin, n_bytes, [from](std::span<std::byte> part, std::int64_t at) {
    std::memcpy(part.data(), from + at, part.size());
  });
}

void take_over(std::byte* from,
               const LocalTransfers::Sink& to,
               std::int64_t begin,
               std::int64_t n_bytes) {
  for_each_part(to, begin, n_bytes, [from](std::span<std::byte> part, std::int64_t at) {
    shm::take_over(part.data(), from + at, part.size());
  });
}

// Copies the data that a rank gives itself; source and sink have the same pieces. A piece may
// already be in place.
void copy_own(const LocalTransfers::Source& from, const LocalTransfers::Sink& to) {
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (!from[i].empty() && from[i].data() != to[i].data()) {
      std::memcpy(to[i].data(), from[i].data(), from[i].size());
    }
  }
}

std::size_t index(int value) {
  return static_cast<std::size_t>(value);
}

// Returns whether peers read the data in place. Such data must not change before all peers have
// read it.
bool stays(Exposure exposure) {
  return exposure == Exposure::kArena || exposure == Exposure::kProcess;
}

}  // namespace

LocalExchange::LocalExchange(OperationContext& context, LocalTransfers transfers)
    : context_(context),
      transfers_(std::move(transfers)),
      offer_bytes_(&context.memory),
      offer_offsets_(transfers_.offers.size(), 0, &context.memory) {
  offer_bytes_.reserve(transfers_.offers.size());
  for (const LocalTransfers::Source& offer : transfers_.offers) {
    offer_bytes_.push_back(n_bytes_of(offer));
  }
}

void LocalExchange::show() {
  std::pmr::vector<int> offers(&context_.memory);
  offers.reserve(transfers_.offers.size());
  for (int offer = 0; offer < static_cast<int>(transfers_.offers.size()); ++offer) {
    if (is_for_others(offer)) {
      offers.push_back(offer);
    }
  }
  mine().n_windows = 0;
  mine().n_offers = static_cast<std::uint16_t>(offers.size());
  mine().exposure = choose_exposure(offers);
  if (mine().exposure == Exposure::kOperationHeader) {
    const int offer = offers.front();
    copy_out(transfers_.offers[index(offer)], 0, offer_bytes_[index(offer)], mine().payload.data());
    return;
  }
  describe_offers();
  if (mine().exposure == Exposure::kSlot) {
    std::byte* const slot =
        context_.control_block.slot(context_.self(), context_.operation.sequence);
    for (const int offer : offers) {
      copy_out(transfers_.offers[index(offer)],
               0,
               offer_bytes_[index(offer)],
               slot + offer_offsets_[index(offer)]);
    }
  }
}

int LocalExchange::n_takers(int offer) const {
  int n = 0;
  for (int taker = 0; taker < context_.n_local(); ++taker) {
    n += taker != context_.self() && transfers_.offer_to[index(taker)] == offer ? 1 : 0;
  }
  return n;
}

bool LocalExchange::is_for_others(int offer) const {
  return offer_bytes_[index(offer)] > 0 && n_takers(offer) > 0;
}

// Returns whether staging is faster than reads from the process.
bool LocalExchange::is_better_staged(std::span<const int> offers, std::int64_t n_bytes) const {
  if (context_.peers.is_forced()) {
    return false;
  }
  const bool has_many_takers =
      std::any_of(offers.begin(), offers.end(), [&](int offer) { return n_takers(offer) > 1; });
  return (has_many_takers && n_bytes > kMostForMany) ||
         (transfers_.is_one_sided && n_bytes > kMostOneSided);
}

Exposure LocalExchange::choose_exposure(std::span<const int> offers) {
  std::int64_t total = 0;
  std::int64_t largest = 0;
  for (const int offer : offers) {
    offer_offsets_[index(offer)] = total;
    total += offer_bytes_[index(offer)];
    largest = std::max(largest, offer_bytes_[index(offer)]);
  }
  if (offers.empty()) {
    return Exposure::kNothing;
  }
  const bool is_for_card = transfers_.is_ready && are_sizes_agreed() && offers.size() == 1;
  if (is_for_card && total <= static_cast<std::int64_t>(mine().payload.size())) {
    return Exposure::kOperationHeader;
  }
  if (transfers_.is_ready && total <= shm::kSlotBytes) {
    return Exposure::kSlot;
  }
  const shm::Arena& arena = context_.control_block.arena(context_.self());
  const auto lies_in_arena = [&](int offer) {
    const std::byte* const data = only_piece(offer);
    const std::optional<std::int64_t> offset =
        data == nullptr ? std::nullopt : arena.offset_of(data, offer_bytes_[index(offer)]);
    offer_offsets_[index(offer)] = offset.value_or(-1);
    return offset.has_value();
  };
  if (std::all_of(offers.begin(), offers.end(), lies_in_arena)) {
    return Exposure::kArena;
  }
  const auto is_one_piece = [&](int offer) {
    const auto address = reinterpret_cast<std::uintptr_t>(only_piece(offer));
    offer_offsets_[index(offer)] = static_cast<std::int64_t>(address);
    return address != 0;
  };
  if (context_.peers.is_shared() && !is_better_staged(offers, total) &&
      std::all_of(offers.begin(), offers.end(), is_one_piece)) {
    return Exposure::kProcess;
  }
  constexpr auto kGrain = static_cast<std::int64_t>(shm::kCacheLine);
  const auto n_offers = static_cast<std::int64_t>(offers.size());
  const std::int64_t share =
      std::max(shm::kSegmentBytes / n_offers / kGrain, std::int64_t{1}) * kGrain;
  UNISONO_CHECK(share * n_offers <= shm::kStagingBytes, "too many ranks on a node");
  for (std::size_t position = 0; position < offers.size(); ++position) {
    offer_offsets_[index(offers[position])] = static_cast<std::int64_t>(position) * share;
  }
  mine().share_bytes = share;
  mine().n_windows = static_cast<std::uint32_t>((largest + share - 1) / share);
  return Exposure::kStaged;
}

const std::byte* LocalExchange::only_piece(int offer) const {
  const LocalTransfers::Source& source = transfers_.offers[index(offer)];
  return source.size() == 1 ? source[0].data() : nullptr;
}

void LocalExchange::describe_offers() {
  for (int peer = 0; peer < context_.n_local(); ++peer) {
    const int offer = transfers_.offer_to[index(peer)];
    context_.control_block.offer(context_.self(), peer, context_.operation.sequence) = {
        .n_bytes = offer < 0 ? 0 : offer_bytes_[index(offer)],
        .offset = offer < 0 ? 0 : offer_offsets_[index(offer)],
        .n_bytes_taken = n_bytes_of(transfers_.from[index(peer)])};
  }
}

// If ranks agree on a count, they agree on all sizes.
bool LocalExchange::are_sizes_agreed() const {
  return context_.operation.descriptor.count != transport::kUneven;
}

// All ranks read the same offers, so all produce the same error text.
void LocalExchange::check_sizes() const {
  if (are_sizes_agreed()) {
    return;
  }
  const std::uint64_t sequence = context_.operation.sequence;
  for (int from = 0; from < context_.n_local(); ++from) {
    for (int to = 0; to < context_.n_local(); ++to) {
      const std::int64_t given = context_.control_block.offer(from, to, sequence).n_bytes;
      const std::int64_t taken = context_.control_block.offer(to, from, sequence).n_bytes_taken;
      if (given != taken) {
        throw Error(ErrorCode::kMismatch,
                    fmt::format("{} gives {} elements to {}, which takes {}",
                                context_.group.describe(context_.rank_at(from)),
                                given / context_.element_bytes(),
                                context_.group.describe(context_.rank_at(to)),
                                taken / context_.element_bytes()));
      }
    }
  }
}

void LocalExchange::take() {
  check_sizes();
  const int self = context_.self();
  if (const int offer = transfers_.offer_to[index(self)]; offer >= 0) {
    copy_own(transfers_.offers[index(offer)], transfers_.from[index(self)]);
  }
  // Each rank begins with its neighbor, so that the ranks do not all read from the same rank.
  std::uint32_t n_windows = mine().n_windows;
  bool must_stay = stays(mine().exposure);
  for (int step = 1; step < context_.n_local(); ++step) {
    const int giver = (self + step) % context_.n_local();
    const shm::OfferPlacement& theirs = context_.header(giver).offers;
    n_windows = std::max(n_windows, theirs.n_windows);
    must_stay = must_stay || stays(theirs.exposure);
    take_at_once(giver);
  }
  if (n_windows == 0 && must_stay) {
    context_.sync();
  }
  // In step k a rank stages window k for its peers, and takes window k - 1 of each peer, so that
  // each step needs a single meeting.
  for (std::uint32_t step = 0; n_windows > 0 && step <= n_windows; ++step) {
    if (step < mine().n_windows) {
      stage(step);
    }
    for (int peer = 1; step > 0 && peer < context_.n_local(); ++peer) {
      take_staged((self + peer) % context_.n_local(), step - 1);
    }
    if (step < n_windows) {
      context_.sync();
    }
  }
  if (n_windows > 0) {
    context_.peers.learn();
  }
}

// If both ranks can derive the size, the offer is not read, because its cache line would have to
// come from the giver.
void LocalExchange::take_at_once(int giver) {
  const std::uint64_t sequence = context_.operation.sequence;
  const shm::Offer& offer = context_.control_block.offer(giver, context_.self(), sequence);
  const shm::OfferPlacement& theirs = context_.header(giver).offers;
  const Exposure exposure = theirs.exposure;
  const LocalTransfers::Sink& sink = transfers_.from[index(giver)];
  const std::int64_t n_bytes = are_sizes_agreed() ? n_bytes_of(sink) : offer.n_bytes;
  if (n_bytes == 0) {
    return;
  }
  if (exposure == Exposure::kOperationHeader) {
    copy_in(theirs.payload.data(), sink, 0, n_bytes);
  } else if (exposure == Exposure::kSlot) {
    const std::int64_t offset = theirs.n_offers == 1 ? 0 : offer.offset;
    take_copy(giver, context_.control_block.slot(giver, sequence) + offset, 0, n_bytes);
  } else if (exposure == Exposure::kArena) {
    copy_in(context_.control_block.at(giver, offer.offset), sink, 0, n_bytes);
  } else if (exposure == Exposure::kProcess) {
    for_each_part(sink, 0, n_bytes, [&](std::span<std::byte> part, std::int64_t at) {
      context_.peers.read(giver, static_cast<std::uint64_t>(offer.offset + at), part);
    });
  }
}

void LocalExchange::stage(std::int64_t window) {
  const std::int64_t share = mine().share_bytes;
  std::byte* const staging = context_.control_block.staging_in(context_.self(), window);
  for (int offer = 0; offer < static_cast<int>(transfers_.offers.size()); ++offer) {
    const std::int64_t begin = window * share;
    const std::int64_t size = std::min(share, offer_bytes_[index(offer)] - begin);
    if (size > 0 && is_for_others(offer)) {
      copy_out(
          transfers_.offers[index(offer)], begin, size, staging + offer_offsets_[index(offer)]);
    }
  }
}

void LocalExchange::take_staged(int giver, std::int64_t window) {
  const shm::OfferPlacement& theirs = context_.header(giver).offers;
  if (theirs.exposure != Exposure::kStaged) {
    return;
  }
  const shm::Offer& offer =
      context_.control_block.offer(giver, context_.self(), context_.operation.sequence);
  const std::int64_t begin = window * theirs.share_bytes;
  const std::int64_t size = std::min(theirs.share_bytes, offer.n_bytes - begin);
  if (size > 0) {
    take_copy(giver, context_.control_block.staging_in(giver, window) + offer.offset, begin, size);
  }
}

// Takes data from a copy that the giver overwrites in the next operation or window.
void LocalExchange::take_copy(int giver,
                              std::byte* copy,
                              std::int64_t begin,
                              std::int64_t n_bytes) {
  const LocalTransfers::Sink& sink = transfers_.from[index(giver)];
  if (context_.has_one_peer()) {
    take_over(copy, sink, begin, n_bytes);
  } else {
    copy_in(copy, sink, begin, n_bytes);
  }
}

}  // namespace unisono::engine
