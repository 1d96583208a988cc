#include "unisono/engine/nccl/announcement.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/deadline.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/engine/engine.h"
#include "unisono/engine/operation.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"
#include "unisono/transport/relayed_error.h"

namespace unisono::engine::nccl {
namespace {

using transport::OperationKind;

// The announcements of all ranks one after the other, each with this many counts behind it.
class Gathered {
 public:
  Gathered(std::size_t world_size, std::size_t n_counts)
      : n_bytes_each_(sizeof(Announcement) + n_counts * sizeof(std::int64_t)),
        bytes_(world_size * n_bytes_each_) {}

  [[nodiscard]] Buffer block(std::size_t rank) {
    return as_buffer(std::span(bytes_).subspan(rank * n_bytes_each_, n_bytes_each_));
  }

  [[nodiscard]] std::int64_t n_bytes() const { return static_cast<std::int64_t>(bytes_.size()); }

  void write(std::size_t rank, const Announcement& announcement, std::span<const Buffer> counted) {
    std::uint8_t* at = bytes_.data() + rank * n_bytes_each_;
    std::memcpy(at, &announcement, sizeof(announcement));
    at += sizeof(announcement);
    for (const Buffer& buffer : counted) {
      std::memcpy(at, &buffer.count, sizeof(buffer.count));
      at += sizeof(buffer.count);
    }
  }

  [[nodiscard]] Announcement announcement(std::size_t rank) const {
    Announcement result;
    std::memcpy(&result, bytes_.data() + rank * n_bytes_each_, sizeof(result));
    return result;
  }

  [[nodiscard]] std::int64_t count(std::size_t rank, std::size_t index) const {
    std::int64_t result = 0;
    std::memcpy(
        &result,
        bytes_.data() + rank * n_bytes_each_ + sizeof(Announcement) + index * sizeof(result),
        sizeof(result));
    return result;
  }

 private:
  std::size_t n_bytes_each_;
  std::vector<std::uint8_t> bytes_;
};

// As the caller calls its buffers: "all_reduce of weights".
std::string of_label(std::string call, const Operation& operation) {
  return operation.label.empty() ? std::move(call) : fmt::format("{} of {}", call, operation.label);
}

// Who called something else than rank 0 is the same rank to all.
void check_same(const rendezvous::Roster& roster,
                const Operation& operation,
                std::span<const Announcement> announcements) {
  const auto known = [&](std::size_t rank) {
    return transport::KnownCall{.who = rendezvous::describe(roster.members[rank]),
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

void check_counts(const rendezvous::Roster& roster,
                  const Operation& operation,
                  const Gathered& gathered) {
  for (std::size_t peer = 0; peer < operation.outs.size(); ++peer) {
    const std::int64_t sent = gathered.count(peer, static_cast<std::size_t>(roster.rank));
    if (sent != operation.outs[peer].count) {
      throw Error(ErrorCode::kMismatch,
                  fmt::format("{} gives {} elements to {}, which takes {}",
                              rendezvous::describe(roster.members[peer]),
                              sent,
                              rendezvous::describe(roster.self()),
                              operation.outs[peer].count));
    }
  }
}

}  // namespace

Error with_call(const rendezvous::Roster& roster, const Operation& operation, const Error& error) {
  return transport::with_call(
      fmt::format("[rank {}/{}]", roster.self().rank, roster.self().world_size),
      of_label(transport::describe(operation.descriptor, operation.sequence), operation),
      error);
}

std::vector<Announcement> agree(Engine& native,
                                const rendezvous::Roster& roster,
                                const Operation& operation,
                                const Announcement& own,
                                TimeLimit limit,
                                Caller caller) {
  const auto world_size = static_cast<std::size_t>(roster.world_size());
  const auto self = static_cast<std::size_t>(roster.rank);
  const transport::Descriptor& descriptor = operation.descriptor;
  const bool has_counts =
      descriptor.kind == OperationKind::kAllToAll && descriptor.count == transport::kUneven;
  Gathered gathered(world_size, has_counts ? world_size : 0);
  gathered.write(self, own, has_counts ? std::span(operation.ins) : std::span<const Buffer>());
  // Not in braces: GCC 12 takes what stands in them for uninitialized where a later part throws.
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
  std::vector<Announcement> announcements;
  for (std::size_t rank = 0; rank < world_size; ++rank) {
    announcements.push_back(gathered.announcement(rank));
  }
  try {
    check_same(roster, operation, announcements);
    if (has_counts) {
      check_counts(roster, operation, gathered);
    }
  } catch (const Error& error) {
    throw with_call(roster, operation, error);
  }
  return announcements;
}

std::string explain_same_gpu(const rendezvous::Roster& roster,
                             std::span<const Announcement> announcements) {
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
