#include "unisono/engine/nccl/announcement.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstring>
#include <utility>

#include "unisono/base/buffer.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/failure.h"

namespace unisono::engine::nccl {
namespace {

using transport::OperationKind;

// The announcements of all ranks in order of rank, each followed by `n_counts` counts.
class Gathered {
 public:
  Gathered(std::size_t world_size, std::size_t n_counts)
      : n_bytes_each_(sizeof(OperationAnnouncement) + n_counts * sizeof(std::int64_t)),
        bytes_(world_size * n_bytes_each_) {}

  [[nodiscard]] Buffer block(std::size_t rank) {
    return as_buffer(std::span(bytes_).subspan(rank * n_bytes_each_, n_bytes_each_));
  }

  [[nodiscard]] std::int64_t n_bytes() const { return static_cast<std::int64_t>(bytes_.size()); }

  void write(std::size_t rank,
             const OperationAnnouncement& announcement,
             std::span<const Buffer> counted) {
    std::uint8_t* at = bytes_.data() + rank * n_bytes_each_;
    std::memcpy(at, &announcement, sizeof(announcement));
    at += sizeof(announcement);
    for (const Buffer& buffer : counted) {
      std::memcpy(at, &buffer.count, sizeof(buffer.count));
      at += sizeof(buffer.count);
    }
  }

  [[nodiscard]] OperationAnnouncement announcement(std::size_t rank) const {
    OperationAnnouncement result;
    std::memcpy(&result, bytes_.data() + rank * n_bytes_each_, sizeof(result));
    return result;
  }

  [[nodiscard]] std::int64_t count(std::size_t rank, std::size_t index) const {
    std::int64_t result = 0;
    std::memcpy(&result,
                bytes_.data() + rank * n_bytes_each_ + sizeof(OperationAnnouncement) +
                    index * sizeof(result),
                sizeof(result));
    return result;
  }

 private:
  std::size_t n_bytes_each_;
  std::vector<std::uint8_t> bytes_;
};

// Appends the operation's label, the caller's name of the buffers: "all_reduce of weights".
std::string of_label(std::string call, const Operation& operation) {
  return operation.label.empty() ? std::move(call) : fmt::format("{} of {}", call, operation.label);
}

// Compares all calls with the call of rank 0, so that every rank reports the same pair of ranks.
void check_same(const transport::RankTable& roster,
                const Operation& operation,
                std::span<const OperationAnnouncement> announcements) {
  const auto known = [&](std::size_t rank) {
    return transport::KnownCall{.who = transport::describe(roster.members[rank]),
                                .sequence = operation.sequence,
                                .descriptor = announcements[rank].descriptor,
                                .counts = rank == static_cast<std::size_t>(roster.rank)
                                              ? transport::counts_of(agreed_blocks(operation))
                                              : std::vector<std::int64_t>()};
  };
  for (std::size_t rank = 1; rank < announcements.size(); ++rank) {
    if (announcements[rank].descriptor != announcements[0].descriptor) {
      throw transport::mismatch(known(0), known(rank));
    }
  }
}

void check_counts(const transport::RankTable& roster,
                  const Operation& operation,
                  const Gathered& gathered) {
  for (std::size_t peer = 0; peer < operation.outs.size(); ++peer) {
    const std::int64_t sent = gathered.count(peer, static_cast<std::size_t>(roster.rank));
    if (sent != operation.outs[peer].count) {
      throw Error(ErrorCode::kMismatch,
                  fmt::format("{} gives {} elements to {}, which takes {}",
                              transport::describe(roster.members[peer]),
                              sent,
                              transport::describe(roster.self()),
                              operation.outs[peer].count));
    }
  }
}

}  // namespace

Error with_call(const std::string& prefix, const Operation& operation, const Error& error) {
  return transport::with_call(
      prefix,
      of_label(transport::describe(operation.descriptor, operation.sequence), operation),
      error);
}

std::vector<OperationAnnouncement> agree(SupervisingEngine& native,
                                         const transport::RankTable& roster,
                                         const Operation& operation,
                                         const OperationAnnouncement& own,
                                         TimeLimit limit,
                                         Caller caller) {
  const auto world_size = static_cast<std::size_t>(roster.world_size());
  const auto self = static_cast<std::size_t>(roster.rank);
  const transport::Descriptor& descriptor = operation.descriptor;
  const bool has_counts =
      descriptor.kind == OperationKind::kAllToAll && descriptor.count == transport::kUneven;
  Gathered gathered(world_size, has_counts ? world_size : 0);
  gathered.write(self, own, has_counts ? std::span(operation.ins) : std::span<const Buffer>());
  // No brace initialization: GCC 12 reports its parts as uninitialized if a later part throws.
  Operation exchange;
  exchange.descriptor = {
      .kind = OperationKind::kAllGather, .dtype = DType::kUInt8, .count = gathered.n_bytes()};
  exchange.sequence = operation.sequence;
  exchange.in = gathered.block(self);
  exchange.label = of_label(fmt::format("NCCL's {}", to_string(descriptor.kind)), operation);
  for (std::size_t rank = 0; rank < world_size; ++rank) {
    exchange.outs.push_back(gathered.block(rank));
  }
  native.execute(exchange, limit, caller);
  std::vector<OperationAnnouncement> announcements;
  for (std::size_t rank = 0; rank < world_size; ++rank) {
    announcements.push_back(gathered.announcement(rank));
  }
  try {
    check_same(roster, operation, announcements);
    if (has_counts) {
      check_counts(roster, operation, gathered);
    }
  } catch (const Error& error) {
    throw with_call(native.prefix(), operation, error);
  }
  return announcements;
}

std::string explain_same_gpu(const transport::RankTable& roster,
                             std::span<const OperationAnnouncement> announcements) {
  for (std::size_t rank = 0; rank < announcements.size(); ++rank) {
    for (std::size_t other = 0; other < rank; ++other) {
      const bool is_same = announcements[rank].device >= 0 &&
                           announcements[rank].uuid == announcements[other].uuid &&
                           roster.members[rank].node == roster.members[other].node;
      if (is_same) {
        return fmt::format(
            "ranks {} and {} are both on cuda:{} of {}; choose each rank's device by LOCAL_RANK, "
            "and start no more ranks on a node than it has GPUs",
            other,
            rank,
            announcements[other].device,
            roster.members[other].host);
      }
    }
  }
  return "";
}

}  // namespace unisono::engine::nccl
