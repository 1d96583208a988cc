#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace unisono::bench {

/// A connection to a store of any library.
class Client {
 public:
  Client() = default;
  virtual ~Client() = default;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  Client(Client&&) = delete;
  Client& operator=(Client&&) = delete;

  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Returns the number of bytes.
  virtual std::size_t get(const std::string& key) = 0;
  virtual std::int64_t add(const std::string& key) = 0;
  virtual std::size_t multi_get(const std::vector<std::string>& keys) = 0;
  /// Waits until the key exists.
  virtual void wait(const std::string& key) = 0;

  using OnChange = std::function<void(const std::string& before, const std::string& after)>;
  /// Calls `on_change` after each later change of the key's value.
  virtual void watch(const std::string& key, OnChange on_change) = 0;
};

/// A server in this process that runs until its destruction.
class Server {
 public:
  Server() = default;
  virtual ~Server() = default;
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  Server(Server&&) = delete;
  Server& operator=(Server&&) = delete;

  [[nodiscard]] virtual std::uint16_t port() const = 0;
};

/// The store of a library, on 127.0.0.1.
struct Library {
  const char* name;
  std::unique_ptr<Server> (*serve)();
  std::unique_ptr<Client> (*connect)(std::uint16_t port);
};

extern const Library kUnisono;
extern const Library kTorch;

}  // namespace unisono::bench
