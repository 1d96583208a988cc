#pragma once

#include <string>
#include <vector>

namespace unisono::python {

/// Throws torch.distributed.DistBackendError with the message, and with `ranks` as its attribute
/// `ranks`. Called on a thread of Python, with or without the GIL.
[[noreturn]] void throw_timeout(const std::string& message, const std::vector<int>& ranks);

}  // namespace unisono::python
