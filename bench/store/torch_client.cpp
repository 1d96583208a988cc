#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "client.h"

namespace unisono::bench {
namespace {

class TorchServer final : public Server {
 public:
  TorchServer() : store_("127.0.0.1", {.port = 0, .isServer = true, .waitWorkers = false}) {}

  [[nodiscard]] std::uint16_t port() const override { return store_.getPort(); }

 private:
  c10d::TCPStore store_;
};

class TorchClient final : public Client {
 public:
  explicit TorchClient(std::uint16_t port)
      : store_("127.0.0.1", {.port = port, .isServer = false, .waitWorkers = false}) {}

  void set(const std::string& key, const std::string& value) override {
    store_.set(key, std::vector<std::uint8_t>(value.begin(), value.end()));
  }

  std::size_t get(const std::string& key) override { return store_.get(key).size(); }

  std::int64_t add(const std::string& key) override { return store_.add(key, 1); }

  std::size_t multi_get(const std::vector<std::string>& keys) override {
    return store_.multiGet(keys).size();
  }

  void wait(const std::string& key) override { store_.wait({key}); }

  void watch(const std::string& /*key*/, OnChange /*on_change*/) override {
    throw std::invalid_argument("PyTorch's store has no watch");
  }

 private:
  c10d::TCPStore store_;
};

}  // namespace

const Library kTorch{
    .name = "torch",
    .serve = [] { return std::unique_ptr<Server>(std::make_unique<TorchServer>()); },
    .connect =
        [](std::uint16_t port) {
          return std::unique_ptr<Client>(std::make_unique<TorchClient>(port));
        }};

}  // namespace unisono::bench
