#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace unisono::rendezvous {

// What this project needs of PMIx, as its standard (version 3 and later) lays it down in memory.

using PmixStatus = int;

inline constexpr PmixStatus kPmixSuccess = 0;
inline constexpr PmixStatus kPmixDoneAtOnce = -157;  ///< PMIX_OPERATION_SUCCEEDED.
inline constexpr std::uint16_t kPmixBool = 1;
inline constexpr std::uint16_t kPmixString = 3;
inline constexpr std::uint16_t kPmixInt = 6;
inline constexpr std::uint8_t kPmixGlobal = 3;  ///< A scope: processes on all nodes.

struct PmixProcess {
  std::array<char, 256> name_space{};
  std::uint32_t rank = 0;
};

struct PmixValue {
  std::uint16_t type = 0;

  union Data {
    void* room[8];  ///< At least as large as the union of any version.
    char* string;
    int integer;
    bool flag;
  } data = {};
};

struct PmixInfo {
  std::array<char, 512> key{};
  std::uint32_t flags = 0;
  PmixValue value;
};

using PmixDone = void (*)(PmixStatus status, void* context);

/// libpmix.so.2.
struct PmixLibrary {
  PmixStatus (*init)(PmixProcess* self, PmixInfo* infos, std::size_t n_infos);
  PmixStatus (*finalize)(const PmixInfo* infos, std::size_t n_infos);
  PmixStatus (*put)(std::uint8_t scope, const char* key, PmixValue* value);
  PmixStatus (*commit)();
  /// `done` is called on the library's thread, once, if this returns kPmixSuccess; the infos have
  /// to stay until then.
  PmixStatus (*fence)(const PmixProcess* processes,
                      std::size_t n_processes,
                      const PmixInfo* infos,
                      std::size_t n_infos,
                      PmixDone done,
                      void* context);
  /// The value is the caller's, made by malloc.
  PmixStatus (*get)(const PmixProcess* process,
                    const char* key,
                    const PmixInfo* infos,
                    std::size_t n_infos,
                    PmixValue** value);
  const char* (*describe)(PmixStatus status);
};

/// Loads it, when it is first called, for good. Thread-safe.
///
/// Throws Error(kNotFound) with the loader's reason.
[[nodiscard]] const PmixLibrary& pmix_library();

}  // namespace unisono::rendezvous
