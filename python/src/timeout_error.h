#pragma once

#include <string>
#include <vector>

namespace unisono::python {

/// Throws torch.distributed.DistBackendError with the message, and with `ranks` as the list that
/// its attribute of that name has. For a thread that Python has called; it may be without the GIL.
[[noreturn]] void throw_timeout(const std::string& message, const std::vector<int>& ranks);

}  // namespace unisono::python
