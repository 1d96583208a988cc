#pragma once

#include <string>

namespace unisono::data::testing {

/// An entry's header and content, padded to whole blocks, as ustar has it.
[[nodiscard]] std::string tar_entry(const std::string& name,
                                    const std::string& content,
                                    char type = '0',
                                    const std::string& prefix = "");

/// A header whose 12 bytes of size are `size`, with the right check sum.
[[nodiscard]] std::string tar_header(const std::string& name,
                                     const std::string& size,
                                     char type = '0',
                                     const std::string& prefix = "");

/// A header block with its check sum set.
[[nodiscard]] std::string with_sum(std::string block);

/// A pax record: "LENGTH KEY=VALUE\n".
[[nodiscard]] std::string pax_record(const std::string& key, const std::string& value);

/// The two blocks of zeros at an archive's end.
[[nodiscard]] std::string tar_end();

}  // namespace unisono::data::testing
