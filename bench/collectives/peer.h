#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace bench {

/// Arguments of a peer's program: PROGRAM OPERATION SIZES SECONDS, in the format of `unisono
/// bench`.
struct PeerArguments {
  std::string operation;
  std::vector<std::int64_t> sizes;
  std::chrono::duration<double> seconds{};
};

/// Throws unisono::Error for a wrong command line.
[[nodiscard]] PeerArguments parse_peer_arguments(int argc, char** argv);

/// Zeros on separate pages, like the private memory of `unisono bench`.
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
