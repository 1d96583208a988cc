// CSV files, plain and gzip.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/datasets/csv.h"

#include "expect.h"
#include "input.h"
#include "memory_file.h"

namespace unisono::fuzz {
namespace {

using Records = std::vector<std::vector<std::string>>;

// Returns std::nullopt if the content is not valid CSV.
std::optional<Records> read(const std::string& content) {
  const MemoryFile file(content);
  try {
    datasets::CsvReader reader(file.path(), {.has_header = false, .max_field_bytes = 4096});
    Records records;
    while (std::optional<std::vector<std::string>> record = reader.next()) {
      records.push_back(std::move(*record));
    }
    return records;
  } catch (const Error& error) {
    expect(error.code() == ErrorCode::kCorruptData, error.what());
    return std::nullopt;
  }
}

// Encodes the records with each field in quotes.
std::string write(const Records& records) {
  std::string text;
  for (const std::vector<std::string>& record : records) {
    const char* separator = "\"";
    for (const std::string& field : record) {
      text += separator;
      for (const char character : field) {
        text += character == '"' ? "\"\"" : std::string(1, character);
      }
      separator = "\",\"";
    }
    text += "\"\r\n";
  }
  return text;
}

}  // namespace
}  // namespace unisono::fuzz

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using unisono::fuzz::expect;
  const std::string content(reinterpret_cast<const char*>(data), size);
  if (const auto records = unisono::fuzz::read(content)) {
    for (const std::vector<std::string>& record : *records) {
      expect(record.size() == records->front().size(), "all records have equally many fields");
    }
    expect(unisono::fuzz::read(unisono::fuzz::write(*records)) == records,
           "what is written is read again");
  }
  return 0;
}
