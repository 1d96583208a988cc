#include "options.h"

#include <array>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/algorithm.h"

namespace unisono::python {
namespace {

using Choice = std::pair<const char*, Algorithm>;

constexpr std::array<Choice, 3> kCompressions{{{"none", Algorithm::kAuto},
                                               {"bfloat16", Algorithm::kTwoShotBFloat16},
                                               {"fp8", Algorithm::kTwoShotFloat8}}};

std::vector<Choice> algorithms() {
  std::vector<Choice> choices;
  for (const Algorithm algorithm : kAlgorithms) {
    choices.emplace_back(to_string(algorithm), algorithm);
  }
  return choices;
}

Algorithm choose(const char* what, std::span<const Choice> choices, const std::string& name) {
  std::string known;
  for (const auto& [theirs, algorithm] : choices) {
    if (name == theirs) {
      return algorithm;
    }
    known += (known.empty() ? "" : ", ") + std::string(theirs);
  }
  throw std::invalid_argument(std::string("there is no ") + what + " '" + name +
                              "'; there are: " + known);
}

void check_together(Algorithm algorithm, Algorithm compressed) {
  const bool is_two_shot = algorithm == Algorithm::kAuto || algorithm == Algorithm::kTwoShot;
  if (compressed != Algorithm::kAuto && !is_two_shot) {
    throw std::invalid_argument(
        std::string("compression goes with the algorithms auto and two_shot, not with ") +
        to_string(algorithm));
  }
}

}  // namespace

std::string Options::compression() const {
  for (const auto& [name, algorithm] : kCompressions) {
    if (algorithm == compressed_) {
      return name;
    }
  }
  throw std::logic_error("a compression without a name");
}

void Options::set_algorithm(const std::string& name) {
  const Algorithm algorithm = choose("algorithm", algorithms(), name);
  check_together(algorithm, compressed_);
  algorithm_ = algorithm;
}

void Options::set_compression(const std::string& name) {
  const Algorithm compressed = choose("compression", kCompressions, name);
  check_together(algorithm_, compressed);
  compressed_ = compressed;
}

}  // namespace unisono::python
