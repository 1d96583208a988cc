#pragma once

#include <unistd.h>

#include <optional>
#include <string>

#include <gtest/gtest.h>

namespace unisono::test {

/// Network namespaces of this process, without devices but for loopback, which is up. They go with
/// the object. Takes root.
class NetworkNamespaces {
 public:
  explicit NetworkNamespaces(int count);
  ~NetworkNamespaces();

  NetworkNamespaces(const NetworkNamespaces&) = delete;
  NetworkNamespaces& operator=(const NetworkNamespaces&) = delete;
  NetworkNamespaces(NetworkNamespaces&&) = delete;
  NetworkNamespaces& operator=(NetworkNamespaces&&) = delete;

  [[nodiscard]] static std::string name(int i);

  /// Why they could not be made; empty if they are there.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 protected:
  /// Runs `ip` with arguments; its complaint, or "" after success.
  [[nodiscard]] static std::string ip(const std::string& arguments);

  /// The same for a step of making them, the last one where there is a problem.
  void make(const std::string& arguments);

 private:
  int count_;
  std::string problem_;
};

/// Of processes in namespaces that are joined as `Network` has it. Skips where none can be made.
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
