#pragma once

#include <string>

namespace unisono::test {

/// `ip` with arguments; its complaint, or "" after success.
[[nodiscard]] std::string ip(const std::string& arguments);

/// Two network namespaces with two cables between them; at the ends of the first are 10.213.77.1
/// and .2, of the second 10.213.78.1 and .2 and fd00:213::1 and ::2. They go with the object. Takes
/// root.
class CabledNamespaces {
 public:
  CabledNamespaces();
  ~CabledNamespaces();

  CabledNamespaces(const CabledNamespaces&) = delete;
  CabledNamespaces& operator=(const CabledNamespaces&) = delete;
  CabledNamespaces(CabledNamespaces&&) = delete;
  CabledNamespaces& operator=(CabledNamespaces&&) = delete;

  [[nodiscard]] static std::string name(int i);

  /// The end of the first cable.
  [[nodiscard]] static std::string address(int i);

  /// Why they could not be made; empty if they are there.
  [[nodiscard]] const std::string& problem() const { return problem_; }

  /// From now on what goes through the first cable is lost, in both directions, and nobody is told:
  /// each end sends it to a device that is not there. "" after success.
  [[nodiscard]] static std::string cut();

  /// From now on what the second sends to this address is dropped on its way through the first, as
  /// by a firewall. "" after success.
  [[nodiscard]] static std::string filter(const std::string& address);

 private:
  void add(const std::string& arguments);

  std::string problem_;
};

}  // namespace unisono::test
