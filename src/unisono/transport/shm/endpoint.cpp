#include "unisono/transport/shm/endpoint.h"

#include <sys/socket.h>

#include <array>
#include <random>
#include <span>
#include <string_view>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/net/unix_socket.h"

namespace unisono::shm {
namespace {

constexpr std::int64_t kPageBytes = 4096;

static_assert(sizeof(EndpointMemory) <= kPageBytes && sizeof(RingMemory) % kPageBytes == 0);

std::uint64_t random_value() {
  std::random_device random;
  return (std::uint64_t{random()} << 32U | random()) | 1U;
}

void clear_bell(const Fd& bell) noexcept {
  std::array<std::byte, 16> discarded{};
  // Bounded, so that a peer that rings all the time cannot keep this rank here.
  for (int n = 0; n < 64; ++n) {
    if (::recv(bell.get(), discarded.data(), discarded.size(), MSG_DONTWAIT) < 0) {
      return;
    }
  }
}

class RingChannel final : public transport::PacketChannel {
 public:
  RingChannel(
      const Endpoint& endpoint, int local_rank, RingMemory& to, RingMemory& from, std::string name)
      : endpoint_(endpoint), local_rank_(local_rank), writer_(to), reader_(from, std::move(name)) {}

  [[nodiscard]] bool send(const transport::Packet& packet,
                          std::string_view label,
                          std::span<const std::byte> payload) override {
    if (!writer_.write(packet, label, payload)) [[unlikely]] {
      return false;
    }
    endpoint_.ring(local_rank_);
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
      endpoint_.ring(local_rank_);
    }
  }

  const Endpoint& endpoint_;
  int local_rank_;
  RingWriter writer_;
  RingReader reader_;
};

}  // namespace

Endpoint::Endpoint(std::vector<EndpointMember> members,
                   int local_rank,
                   bool has_bell_socket,
                   bool has_single_copy)
    : members_(std::move(members)),
      local_rank_(local_rank),
      has_single_copy_(has_single_copy),
      proof_value_(std::make_unique<const std::uint64_t>(random_value())) {
  const std::int64_t size = n_bytes(static_cast<int>(members_.size()));
  for (const EndpointMember& peer : members_) {
    UNISONO_CHECK(peer.offset_bytes >= 0 && peer.arena->n_bytes() - size >= peer.offset_bytes,
                  "an arena is too small for a group's endpoint");
  }
  if (has_bell_socket) {
    bell_ = net::bind_unix_datagram(member(local_rank_).bell);
  }
  ProcessProof& proof = memory(local_rank_).proof;
  proof.address = reinterpret_cast<std::uintptr_t>(proof_value_.get());
  // Pairs with the acquire in ProcessMemory.
  proof.value.store(*proof_value_, std::memory_order_release);
}

std::int64_t Endpoint::n_bytes(int local_world_size) {
  return kPageBytes + local_world_size * static_cast<std::int64_t>(sizeof(RingMemory));
}

EndpointMemory& Endpoint::memory(int local_rank) const {
  const EndpointMember& owner = member(local_rank);
  return *reinterpret_cast<EndpointMemory*>(owner.arena->data() + owner.offset_bytes);
}

RingMemory& Endpoint::ring(int to, int from) const {
  const EndpointMember& owner = member(to);
  return reinterpret_cast<RingMemory*>(owner.arena->data() + owner.offset_bytes + kPageBytes)[from];
}

std::unique_ptr<transport::PacketChannel> Endpoint::channel(int local_rank) {
  return std::make_unique<RingChannel>(*this,
                                       local_rank,
                                       ring(local_rank, local_rank_),
                                       ring(local_rank_, local_rank),
                                       member(local_rank).name);
}

ProcessMemory Endpoint::process_memory(int local_rank) const {
  return {member(local_rank).pid, memory(local_rank).proof, has_single_copy_};
}

void Endpoint::withdraw() const noexcept {
  memory(local_rank_).has_withdrawn.store(1, std::memory_order_seq_cst);
}

// A read-modify-write that changes no bit: a plain load would not be ordered after the preceding
// loads.
bool Endpoint::has_withdrawn(int local_rank) const noexcept {
  return memory(local_rank).has_withdrawn.fetch_or(0, std::memory_order_acq_rel) != 0;
}

void Endpoint::ring(int local_rank) const noexcept {
  EndpointMemory& peer = memory(local_rank);
  peer.doorbell.ring();
  if (bell_.is_open() && peer.is_polling.load(std::memory_order_seq_cst) != 0) [[unlikely]] {
    // A datagram wakes a rank that sleeps in poll(2). Its content is ignored, so a stranger can
    // wake a rank but do no harm. A full queue contains enough wake-ups already, and a rank that is
    // gone needs no wake-up.
    const std::byte nothing{0};
    (void)net::send_datagram(bell_.get(), member(local_rank).bell, std::span(&nothing, 1));
  }
}

void Endpoint::wake() const noexcept {
  ring(local_rank_);
}

std::uint32_t Endpoint::prepare(bool is_polling) noexcept {
  EndpointMemory& mine = memory(local_rank_);
  if (is_polling) {
    mine.is_polling.store(1, std::memory_order_seq_cst);
    return 0;
  }
  return mine.doorbell.prepare();
}

void Endpoint::sleep(std::uint32_t rings, Deadline deadline) noexcept {
  memory(local_rank_).doorbell.sleep(rings, deadline);
}

void Endpoint::stay() noexcept {
  EndpointMemory& mine = memory(local_rank_);
  mine.doorbell.stay();
  if (mine.is_polling.load(std::memory_order_relaxed) != 0) {
    mine.is_polling.store(0, std::memory_order_relaxed);
    if (bell_.is_open()) {
      clear_bell(bell_);
    }
  }
}

}  // namespace unisono::shm
