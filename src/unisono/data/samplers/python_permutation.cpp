#include "unisono/data/samplers/python_permutation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace unisono::data {
namespace {

using State = std::array<std::uint32_t, std::mt19937::state_size>;

// The state of the generator after init_genrand(19650218), where init_by_array() starts.
State start_state() {
  State state{};
  state[0] = 19650218;
  for (std::uint32_t i = 1; i < state.size(); ++i) {
    state[i] = 1812433253U * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
  }
  return state;
}

// The 32-bit digits of the seed's absolute value, the least significant first; at least one.
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

// Hands std::mt19937 a whole state: the only way in that the standard has.
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

// getrandbits() of 1 to 64 bits.
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

}  // namespace unisono::data
