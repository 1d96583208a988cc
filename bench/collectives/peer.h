#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace bench {

/// What a peer's program is asked to measure: PROGRAM OPERATION SIZES SECONDS, as the options of
/// `unisono bench` have them.
struct PeerArguments {
  std::string operation;
  std::vector<std::int64_t> sizes;
  std::chrono::duration<double> seconds{};
};

/// Throws unisono::Error for a wrong command line.
[[nodiscard]] PeerArguments parse_peer_arguments(int argc, char** argv);

/// Zeros on pages of their own, as `unisono bench` has its private memory.
class FloatArray {
 public:
  explicit FloatArray(std::int64_t count);

  [[nodiscard]] float* data() const { return data_.get(); }

 private:
  struct Free {
    void operator()(float* data) const;
  };

  std::unique_ptr<float, Free> data_;
};

}  // namespace bench
