#pragma once

#include <string>

namespace unisono {

/// A library of the system, loaded when somebody needs it, for good: what it has opened itself
/// might not bear being unloaded.
class LoadedLibrary {
 public:
  /// `file` is as the loader looks for it: "libpmix.so.2".
  ///
  /// Throws Error(kNotFound) with the loader's reason.
  explicit LoadedLibrary(std::string file);

  /// Sets `function` to the library's function of that name, which must be of this type.
  ///
  /// Throws Error(kNotFound) with the names of both.
  template <class Function>
  void find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(address_of(name));
  }

 private:
  [[nodiscard]] void* address_of(const char* name) const;

  std::string file_;
  void* handle_;
};

}  // namespace unisono
