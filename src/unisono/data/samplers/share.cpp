#include "unisono/data/samplers/share.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "unisono/base/error.h"

namespace unisono::data {
namespace {

constexpr std::int64_t kMaxNumbers = std::int64_t{1} << 48;

// From this size on, torch uses 64-bit random numbers and another way of shuffling.
constexpr std::size_t kFirstWide = std::numeric_limits<std::uint32_t>::max() / 20;

// Each place gets one of the remaining numbers.
void shuffle_forward(std::vector<std::int64_t>& numbers, std::mt19937& engine) {
  for (std::size_t i = 0; i + 1 < numbers.size(); ++i) {
    std::swap(numbers[i], numbers[i + engine() % (numbers.size() - i)]);
  }
}

// Each number is swapped with the number at a random place up to its own place.
void shuffle_inside_out(std::vector<std::int64_t>& numbers, std::mt19937& engine) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::uint64_t high = engine();
    const std::uint64_t random = high << 32 | engine();
    std::swap(numbers[i], numbers[random % (i + 1)]);
  }
}

}  // namespace

std::vector<std::int64_t> random_permutation(std::int64_t n, std::uint64_t seed) {
  if (n < 0 || n > kMaxNumbers) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "random_permutation: {} numbers were requested; 0 to {} are possible", n, kMaxNumbers));
  }
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(n));
  std::iota(numbers.begin(), numbers.end(), std::int64_t{0});

  std::mt19937 engine(static_cast<std::uint32_t>(seed));
  if (numbers.size() < kFirstWide) {
    shuffle_forward(numbers, engine);
  } else {
    shuffle_inside_out(numbers, engine);
  }
  return numbers;
}

namespace {

using State = std::array<std::uint32_t, std::mt19937::state_size>;

// Returns the state of the generator after init_genrand(19650218), from which init_by_array()
// starts.
State start_state() {
  State state{};
  state[0] = 19650218;
  for (std::uint32_t i = 1; i < state.size(); ++i) {
    state[i] = 1812433253U * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
  }
  return state;
}

// Returns the 32-bit digits of the seed's absolute value, the least significant first; at least one
// digit.
std::vector<std::uint32_t> key_of(std::int64_t seed) {
  const auto bits = static_cast<std::uint64_t>(seed);
  const std::uint64_t magnitude = seed < 0 ? 0 - bits : bits;
  std::vector<std::uint32_t> key{static_cast<std::uint32_t>(magnitude)};
  if (magnitude >> 32 != 0) {
    key.push_back(static_cast<std::uint32_t>(magnitude >> 32));
  }
  return key;
}

State init_by_array(const std::vector<std::uint32_t>& key) {
  State state = start_state();
  std::size_t at = 1;
  const auto mix = [&](std::uint32_t factor) {
    return state[at] ^ ((state[at - 1] ^ (state[at - 1] >> 30)) * factor);
  };
  const auto go_on = [&] {
    if (++at == state.size()) {
      state.front() = state.back();
      at = 1;
    }
  };
  std::size_t digit = 0;
  for (std::size_t left = std::max(state.size(), key.size()); left > 0; --left) {
    state[at] = mix(1664525) + key[digit] + static_cast<std::uint32_t>(digit);
    digit = (digit + 1) % key.size();
    go_on();
  }
  for (std::size_t left = state.size() - 1; left > 0; --left) {
    state[at] = mix(1566083941) - static_cast<std::uint32_t>(at);
    go_on();
  }
  state.front() = 0x80000000U;
  return state;
}

// Passes a whole state to std::mt19937; the standard has no other way.
class WholeState {
 public:
  using result_type = std::uint32_t;

  explicit WholeState(const State& state) : state_(state) {}

  template <class Iterator>
  void generate(Iterator begin, Iterator end) const {
    std::copy_n(state_.begin(), end - begin, begin);
  }

 private:
  State state_;
};

// Returns getrandbits() for 1 to 64 bits.
std::uint64_t random_bits(std::mt19937& engine, int n_bits) {
  if (n_bits <= 32) {
    return engine() >> (32 - n_bits);
  }
  const std::uint64_t low = engine();
  const std::uint64_t high = engine() >> (64 - n_bits);
  return high << 32 | low;
}

std::uint64_t random_below(std::mt19937& engine, std::uint64_t limit) {
  const auto n_bits = static_cast<int>(std::bit_width(limit));
  std::uint64_t random = random_bits(engine, n_bits);
  while (random >= limit) {
    random = random_bits(engine, n_bits);
  }
  return random;
}

}  // namespace

std::vector<std::int64_t> python_permutation(std::int64_t n, std::int64_t seed) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(n));
  std::iota(numbers.begin(), numbers.end(), std::int64_t{0});

  WholeState state(init_by_array(key_of(seed)));
  std::mt19937 engine(state);
  for (std::size_t left = numbers.size(); left > 1; --left) {
    std::swap(numbers[left - 1], numbers[random_below(engine, left)]);
  }
  return numbers;
}

namespace {

constexpr std::int64_t kMaxDatasetSize = std::int64_t{1} << 48;

}  // namespace

void check_dataset_size(const std::string& who, std::int64_t dataset_size) {
  if (dataset_size < 0 || dataset_size > kMaxDatasetSize) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: a data set of {} samples; 0 to {} are possible",
                            who,
                            dataset_size,
                            kMaxDatasetSize));
  }
}

void check_share(const std::string& who, const Share& share) {
  check_dataset_size(who, share.dataset_size);
  if (share.num_replicas < 1) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "{}: num_replicas is {}; it is the world size, at least 1", who, share.num_replicas));
  }
  if (share.rank < 0 || share.rank >= share.num_replicas) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: rank is {}, but {} replicas have the ranks 0 to {}; pass the "
                            "global rank, not the local one",
                            who,
                            share.rank,
                            share.num_replicas,
                            share.num_replicas - 1));
  }
}

std::int64_t size_of(const Share& share, bool drop_last) {
  const std::int64_t n_left = share.dataset_size - share.first;
  const bool has_uneven_rest = n_left % share.num_replicas != 0 && !drop_last;
  return n_left / share.num_replicas + (has_uneven_rest ? 1 : 0);
}

std::vector<std::int64_t> deal(const Share& share, std::int64_t count, const EpochOrder& order) {
  std::vector<std::int64_t> shuffled;
  if (order.shuffle) {
    shuffled = random_permutation(
        share.dataset_size,
        static_cast<std::uint64_t>(order.seed) + static_cast<std::uint64_t>(order.epoch));
  }
  std::vector<std::int64_t> indices;
  indices.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    // The order starts again after its end; these are the repeated samples.
    const std::int64_t place =
        (share.first + share.rank + i * share.num_replicas) % share.dataset_size;
    indices.push_back(order.shuffle ? shuffled[static_cast<std::size_t>(place)] : place);
  }
  return indices;
}

}  // namespace unisono::data
