#pragma once

#include <string>

namespace unisono {

/// "train(int) in /opt/job/train(+0x1a2b)" for an address in the code of this process. The function
/// is named where its file exports it.
[[nodiscard]] std::string describe_address(const void* address);

/// "train(int)" for "_Z5traini"; what is no such name comes back as it is.
[[nodiscard]] std::string demangle(const char* name);

}  // namespace unisono
