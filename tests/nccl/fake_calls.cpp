#include "fake_calls.h"

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "fake_sums.h"

namespace fake_nccl {
namespace {

using Bytes = std::vector<std::byte>;

// Returns a part of the input of a call.
const std::byte* at(const Call& call, std::size_t element) {
  return static_cast<const std::byte*>(call.in) + element * size_of(call.type);
}

// Returns the reduction of the elements [first, first + count) of these calls' inputs.
std::optional<Bytes> reduce(const std::vector<const Call*>& calls,
                            std::size_t first,
                            std::size_t count) {
  std::vector<const std::byte*> inputs;
  for (const Call* const call : calls) {
    inputs.push_back(at(*call, first));
  }
  return combine(inputs, count, calls[0]->type, calls[0]->op);
}

// The calls of all ranks, from the perspective of one rank.
class Group {
 public:
  Group(const std::vector<std::vector<Call>>& ranks, int self) : ranks_(ranks), self_(self) {}

  [[nodiscard]] std::optional<std::vector<Write>> compute() const {
    std::vector<Write> writes;
    for (std::size_t number = 0; number < ranks_[static_cast<std::size_t>(self_)].size();
         ++number) {
      const auto calls = collective(number);
      if (!calls) {
        return std::nullopt;
      }
      const Call& own = *(*calls)[static_cast<std::size_t>(self_)];
      std::optional<Bytes> bytes = of_collective(own, *calls);
      if (!bytes) {
        return std::nullopt;
      }
      writes.push_back({.to = own.out, .bytes = std::move(*bytes)});
    }
    return writes;
  }

 private:
  // Returns the call with this number on all ranks.
  [[nodiscard]] std::optional<std::vector<const Call*>> collective(std::size_t number) const {
    std::vector<const Call*> calls;
    for (const std::vector<Call>& rank : ranks_) {
      if (number < rank.size()) {
        calls.push_back(&rank[number]);
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
        return bytes_of(*calls[root]);
      default: {
        Bytes all;
        for (const Call* const other : calls) {
          const Bytes bytes = bytes_of(*other);
          all.insert(all.end(), bytes.begin(), bytes.end());
        }
        return all;
      }
    }
  }

  const std::vector<std::vector<Call>>& ranks_;
  int self_;
};

}  // namespace

bool is_message(const Call& call) {
  return call.kind == Kind::kSend || call.kind == Kind::kRecv;
}

std::vector<std::byte> bytes_of(const Call& call) {
  return {at(call, 0), at(call, call.count)};
}

std::optional<std::vector<Write>> compute(const std::vector<std::vector<Call>>& ranks, int self) {
  return Group(ranks, self).compute();
}

}  // namespace fake_nccl
