#include "attacks/script/line.h"

#include <sstream>

namespace unisono::attacks {

Line::Line(const std::string& text) {
  std::istringstream words(text);
  words >> step_ >> verb_;
  for (std::string word; words >> word;) {
    const std::size_t end = word.find('=');
    values_[word.substr(0, end)] = word.substr(end + 1);
  }
}

std::string Line::text(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? "" : found->second;
}

std::int64_t Line::number(const std::string& key, std::int64_t otherwise) const {
  return has(key) ? std::stoll(text(key)) : otherwise;
}

std::vector<std::int64_t> Line::numbers(const std::string& key) const {
  std::vector<std::int64_t> numbers;
  std::istringstream list(text(key));
  for (std::string number; std::getline(list, number, ',');) {
    numbers.push_back(std::stoll(number));
  }
  return numbers;
}

std::optional<std::chrono::milliseconds> Line::timeout() const {
  if (!has("timeout")) {
    return std::nullopt;
  }
  return std::chrono::milliseconds(number("timeout"));
}

}  // namespace unisono::attacks
