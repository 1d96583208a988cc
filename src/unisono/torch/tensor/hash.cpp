#include "unisono/torch/tensor/hash.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>

#include "unisono/base/error.h"
#include "unisono/torch/device/host_copies.h"
#include "unisono/torch/tensor/agreement.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono {
namespace {

// Odd constants with about half of their bits set. Multiplication by such a constant is a bijection
// that spreads each input bit upwards; the rotation and the shifts bring the upper bits back down.
constexpr std::uint64_t kFirst = 0x9e3779b97f4a7c15;
constexpr std::uint64_t kSecond = 0xd6e8feb86659fd93;

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  return std::rotl(hash ^ (word * kFirst), 29) * kSecond;
}

}  // namespace

std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::uint64_t hash = mix(seed, bytes.size());
  while (!bytes.empty()) {
    const std::span<const std::byte> chunk = bytes.first(bytes.size() < 8 ? bytes.size() : 8);
    std::uint64_t word = 0;
    std::memcpy(&word, chunk.data(), chunk.size());
    hash = mix(hash, word);
    bytes = bytes.subspan(chunk.size());
  }
  hash = (hash ^ (hash >> 32)) * kFirst;
  return hash ^ (hash >> 29);
}

std::uint64_t hash_tensors(const std::vector<at::Tensor>& tensors) {
  std::uint64_t hash = 0;
  for (const at::Tensor& tensor : distinct_tensors(tensors)) {
    const std::string description = describe(tensor);
    hash = hash_bytes(std::as_bytes(std::span(description)), hash);
    if (tensor.defined()) {
      const at::Tensor elements = on_host(tensor).contiguous();
      const auto* const start = static_cast<const std::byte*>(elements.const_data_ptr());
      hash = hash_bytes(std::span(start, elements.nbytes()), hash);
    }
  }
  return hash;
}

std::string format_hash(std::uint64_t hash) {
  std::array<char, 16> digits{};
  const auto [end, error] = std::to_chars(digits.data(), digits.data() + digits.size(), hash, 16);
  const std::string text(digits.data(), end);
  return std::string(digits.size() - text.size(), '0') + text;
}

namespace {

// Returns the reason why a tensor cannot be compared; an empty string if the tensor can be
// compared.
std::string problem_of(const at::Tensor& tensor) {
  if (!tensor.defined() || (tensor.layout() == at::kStrided && has_elements(tensor.device()))) {
    return {};
  }
  return (has_elements(tensor.device()) ? "sparse" : "on " + tensor.device().str()) +
         "; only dense tensors with elements can be compared";
}

Property property_of(const NamedTensor& named) {
  const std::string problem = problem_of(named.tensor);
  return {.what = "tensor '" + named.name + "'",
          .value = problem.empty() ? describe(named.tensor) + " with hash " +
                                         format_hash(hash_tensors({named.tensor}))
                                   : problem};
}

}  // namespace

void check_consistent(ProcessGroup& group,
                      const std::vector<NamedTensor>& tensors,
                      const std::string& who,
                      std::optional<std::chrono::milliseconds> timeout) {
  std::vector<Property> properties;
  properties.reserve(tensors.size());
  for (const NamedTensor& named : tensors) {
    properties.push_back(property_of(named));
  }
  // Ranks with tensors that cannot be compared take part as well, because the other ranks would
  // wait.
  check_agreement(group, properties, who + ": the ranks differ", timeout);
  for (const NamedTensor& named : tensors) {
    if (const std::string problem = problem_of(named.tensor); !problem.empty()) {
      throw Error(ErrorCode::kInvalidArgument, who + ": tensor '" + named.name + "' is " + problem);
    }
  }
}

void check_consistent(ProcessGroup& group,
                      const std::string& what,
                      const std::string& value,
                      const std::string& who,
                      std::optional<std::chrono::milliseconds> timeout) {
  check_agreement(group, {{.what = what, .value = value}}, who + ": the ranks differ", timeout);
}

}  // namespace unisono
