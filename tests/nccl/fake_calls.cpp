#include "fake_calls.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fake_sums.h"

namespace fake_nccl {
namespace {

using Bytes = std::vector<std::byte>;

// A part of the input of a call.
const std::byte* at(const Call& call, std::size_t element) {
  return static_cast<const std::byte*>(call.in) + element * size_of(call.type);
}

// Elements [first, first + count) of these calls' inputs, combined.
std::optional<Bytes> reduce(const std::vector<const Call*>& calls,
                            std::size_t first,
                            std::size_t count) {
  std::vector<const std::byte*> inputs;
  for (const Call* const call : calls) {
    inputs.push_back(at(*call, first));
  }
  return combine(inputs, count, calls[0]->type, calls[0]->op);
}

bool is_message(const Call& call) {
  return call.kind == Kind::kSend || call.kind == Kind::kRecv;
}

// The calls of all ranks, as one of them sees them.
class Group {
 public:
  Group(const std::vector<std::vector<Call>>& ranks, int self) : ranks_(ranks), self_(self) {}

  [[nodiscard]] std::optional<std::vector<Write>> compute() const {
    std::vector<Write> writes;
    std::size_t n_collectives = 0;
    std::map<int, std::size_t> n_received;
    for (const Call& call : ranks_[static_cast<std::size_t>(self_)]) {
      std::optional<Bytes> bytes;
      if (!is_message(call)) {
        const auto calls = collective(n_collectives++);
        bytes = calls ? of_collective(call, *calls) : std::nullopt;
      } else if (call.kind == Kind::kRecv) {
        bytes = received(call, n_received[call.peer]++);
      } else {
        bytes = n_of(Kind::kRecv, call.peer, self_) == n_of(Kind::kSend, self_, call.peer)
                    ? std::optional(Bytes())
                    : std::nullopt;
      }
      if (!bytes) {
        return std::nullopt;
      }
      writes.push_back({.to = call.out, .bytes = std::move(*bytes)});
    }
    return writes;
  }

 private:
  [[nodiscard]] std::size_t n_of(Kind kind, int rank, int peer) const {
    std::size_t n = 0;
    for (const Call& call : ranks_[static_cast<std::size_t>(rank)]) {
      n += call.kind == kind && call.peer == peer ? 1 : 0;
    }
    return n;
  }

  // The same call of all ranks.
  [[nodiscard]] std::optional<std::vector<const Call*>> collective(std::size_t number) const {
    std::vector<const Call*> calls;
    for (const std::vector<Call>& rank : ranks_) {
      std::size_t n = 0;
      for (const Call& call : rank) {
        if (!is_message(call) && n++ == number) {
          calls.push_back(&call);
        }
      }
    }
    bool fits = calls.size() == ranks_.size();
    for (const Call* const call : calls) {
      fits = fits && call->kind == calls[0]->kind && call->count == calls[0]->count &&
             call->type == calls[0]->type && call->op == calls[0]->op &&
             call->peer == calls[0]->peer;
    }
    return fits ? std::optional(calls) : std::nullopt;
  }

  [[nodiscard]] std::optional<Bytes> of_collective(const Call& call,
                                                   const std::vector<const Call*>& calls) const {
    const auto root = static_cast<std::size_t>(call.peer);
    switch (call.kind) {
      case Kind::kAllReduce:
        return reduce(calls, 0, call.count);
      case Kind::kReduce:
        return call.peer == self_ ? reduce(calls, 0, call.count) : Bytes();
      case Kind::kReduceScatter:
        return reduce(calls, static_cast<std::size_t>(self_) * call.count, call.count);
      case Kind::kBroadcast:
        return Bytes(at(*calls[root], 0), at(*calls[root], call.count));
      default: {
        Bytes all;
        for (const Call* const other : calls) {
          all.insert(all.end(), at(*other, 0), at(*other, call.count));
        }
        return all;
      }
    }
  }

  [[nodiscard]] std::optional<Bytes> received(const Call& call, std::size_t number) const {
    std::size_t n = 0;
    for (const Call& sent : ranks_[static_cast<std::size_t>(call.peer)]) {
      if (sent.kind == Kind::kSend && sent.peer == self_ && n++ == number) {
        return sent.count == call.count && sent.type == call.type
                   ? std::optional(Bytes(at(sent, 0), at(sent, sent.count)))
                   : std::nullopt;
      }
    }
    return std::nullopt;
  }

  const std::vector<std::vector<Call>>& ranks_;
  int self_;
};

}  // namespace

std::optional<std::vector<Write>> compute(const std::vector<std::vector<Call>>& ranks, int self) {
  return Group(ranks, self).compute();
}

}  // namespace fake_nccl
