#include "unisono/transport/shm/mailbox.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/transport/packet.h"
#include "unisono/transport/packet_channel.h"
#include "unisono/transport/shm/lane.h"
#include "unisono/transport/shm/process_memory.h"

namespace unisono::shm {
namespace {

constexpr std::int64_t kPageBytes = 4096;

static_assert(sizeof(MailboxMemory) <= kPageBytes && sizeof(LaneMemory) % kPageBytes == 0);

std::uint64_t random_value() {
  std::random_device random;
  return (std::uint64_t{random()} << 32U | random()) | 1U;
}

class LaneChannel final : public transport::PacketChannel {
 public:
  LaneChannel(
      const Mailbox& mailbox, int local_rank, LaneMemory& to, LaneMemory& from, std::string name)
      : mailbox_(mailbox), local_rank_(local_rank), writer_(to), reader_(from, std::move(name)) {}

  [[nodiscard]] bool send(const transport::Packet& packet,
                          std::string_view label,
                          std::span<const std::byte> payload) override {
    if (!writer_.write(packet, label, payload)) [[unlikely]] {
      return false;
    }
    mailbox_.ring(local_rank_);
    return true;
  }

  [[nodiscard]] const transport::Packet* peek() override {
    const transport::Packet* const packet = reader_.peek();
    ring_writer();
    return packet;
  }

  [[nodiscard]] std::string_view label() const override { return reader_.label(); }

  [[nodiscard]] bool take(std::span<std::byte> payload) override {
    reader_.take(payload);
    ring_writer();
    return true;
  }

 private:
  void ring_writer() {
    if (reader_.must_ring()) [[unlikely]] {
      mailbox_.ring(local_rank_);
    }
  }

  const Mailbox& mailbox_;
  int local_rank_;
  LaneWriter writer_;
  LaneReader reader_;
};

}  // namespace

Mailbox::Mailbox(std::vector<MailboxMember> members,
                 int local_rank,
                 bool has_bell_socket,
                 bool has_single_copy)
    : members_(std::move(members)),
      local_rank_(local_rank),
      has_single_copy_(has_single_copy),
      proof_value_(std::make_unique<const std::uint64_t>(random_value())) {
  const std::int64_t size = n_bytes(static_cast<int>(members_.size()));
  for (const MailboxMember& peer : members_) {
    UNISONO_CHECK(peer.offset_bytes >= 0 && peer.arena->n_bytes() - size >= peer.offset_bytes,
                  "an arena is too small for a group's mailbox");
  }
  if (has_bell_socket) {
    bell_.emplace(member(local_rank_).bell);
  }
  ProcessProof& proof = memory(local_rank_).proof;
  proof.address = reinterpret_cast<std::uintptr_t>(proof_value_.get());
  // Pairs with the acquire in ProcessMemory.
  proof.value.store(*proof_value_, std::memory_order_release);
}

std::int64_t Mailbox::n_bytes(int local_world_size) {
  return kPageBytes + local_world_size * static_cast<std::int64_t>(sizeof(LaneMemory));
}

MailboxMemory& Mailbox::memory(int local_rank) const {
  const MailboxMember& owner = member(local_rank);
  return *reinterpret_cast<MailboxMemory*>(owner.arena->data() + owner.offset_bytes);
}

LaneMemory& Mailbox::lane(int to, int from) const {
  const MailboxMember& owner = member(to);
  return reinterpret_cast<LaneMemory*>(owner.arena->data() + owner.offset_bytes + kPageBytes)[from];
}

std::unique_ptr<transport::PacketChannel> Mailbox::channel(int local_rank) {
  return std::make_unique<LaneChannel>(*this,
                                       local_rank,
                                       lane(local_rank, local_rank_),
                                       lane(local_rank_, local_rank),
                                       member(local_rank).name);
}

ProcessMemory Mailbox::process_memory(int local_rank) const {
  return {member(local_rank).pid, memory(local_rank).proof, has_single_copy_};
}

void Mailbox::withdraw() const noexcept {
  memory(local_rank_).has_withdrawn.store(1, std::memory_order_seq_cst);
}

// Changes nothing: a load would not have to come after the loads before it.
bool Mailbox::has_withdrawn(int local_rank) const noexcept {
  return memory(local_rank).has_withdrawn.fetch_or(0, std::memory_order_acq_rel) != 0;
}

void Mailbox::ring(int local_rank) const noexcept {
  MailboxMemory& peer = memory(local_rank);
  peer.doorbell.ring();
  if (bell_ && peer.is_polling.load(std::memory_order_seq_cst) != 0) [[unlikely]] {
    bell_->ring(member(local_rank).bell);
  }
}

void Mailbox::wake() const noexcept {
  ring(local_rank_);
}

std::uint32_t Mailbox::prepare(bool is_polling) noexcept {
  MailboxMemory& mine = memory(local_rank_);
  if (is_polling) {
    mine.is_polling.store(1, std::memory_order_seq_cst);
    return 0;
  }
  return mine.doorbell.prepare();
}

void Mailbox::sleep(std::uint32_t rings, Deadline deadline) noexcept {
  memory(local_rank_).doorbell.sleep(rings, deadline);
}

void Mailbox::stay() noexcept {
  MailboxMemory& mine = memory(local_rank_);
  mine.doorbell.stay();
  if (mine.is_polling.load(std::memory_order_relaxed) != 0) {
    mine.is_polling.store(0, std::memory_order_relaxed);
    if (bell_) {
      bell_->clear();
    }
  }
}

}  // namespace unisono::shm
