#pragma once

#include <unistd.h>

#include <optional>
#include <string>

#include <gtest/gtest.h>

namespace unisono::test {

/// Network namespaces of this process that have only a loopback interface, which is up. The
/// namespaces end with the object. Requires root.
class NetworkNamespaces {
 public:
  explicit NetworkNamespaces(int count);
  ~NetworkNamespaces();

  NetworkNamespaces(const NetworkNamespaces&) = delete;
  NetworkNamespaces& operator=(const NetworkNamespaces&) = delete;
  NetworkNamespaces(NetworkNamespaces&&) = delete;
  NetworkNamespaces& operator=(NetworkNamespaces&&) = delete;

  [[nodiscard]] static std::string name(int i);

  /// The reason why the namespaces could not be made; empty after success.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 protected:
  /// Runs `ip` with arguments. Returns the error message of `ip`, or "" after success.
  [[nodiscard]] static std::string ip(const std::string& arguments);

  /// Runs `ip` as a step of the setup, unless an earlier step has failed. Stores the error message
  /// in problem().
  void make(const std::string& arguments);

 private:
  int count_;
  std::string problem_;
};

/// Fixture for tests of processes in namespaces that `Network` connects. Skips the test if
/// namespaces can't be made.
template <class Network>
class NetworkTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) {
      GTEST_SKIP() << "network namespaces take root";
    }
    network_.emplace();
    if (!network_->problem().empty()) {
      GTEST_SKIP() << "no network namespaces here: " << network_->problem();
    }
  }

 private:
  std::optional<Network> network_;
};

}  // namespace unisono::test
