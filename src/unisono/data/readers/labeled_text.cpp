#include "unisono/data/readers/labeled_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/data/readers/csv.h"
#include "unisono/data/readers/data_folder.h"
#include "unisono/data/readers/line_source.h"
#include "unisono/data/readers/split.h"

namespace unisono {
namespace {

namespace fs = std::filesystem;

// The whole text as a number from 0; nothing where it is none.
std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = problem == std::errc() && end == text.data() + text.size() && number >= 0;
  return is_number ? std::optional(number) : std::nullopt;
}

struct ReviewFile {
  std::int64_t id;
  std::string path;

  friend auto operator<=>(const ReviewFile&, const ReviewFile&) = default;
};

// By id, which is what stands before the name's first "_".
std::vector<ReviewFile> review_files(const fs::path& folder) {
  std::vector<ReviewFile> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".txt") {
      continue;
    }
    const std::string name = entry.path().filename().string();
    const std::optional<std::int64_t> id = number_of(name.substr(0, name.find('_')));
    if (!id) {
      throw Error(
          ErrorCode::kCorruptData,
          fmt::format("{}: the name is not of the form ID_RATING.txt", entry.path().string()));
    }
    files.push_back({.id = *id, .path = entry.path().string()});
  }
  std::ranges::sort(files);
  return files;
}

void append_reviews(const fs::path& folder, std::int64_t label, std::vector<LabeledText>& texts) {
  data::check_data_folder(folder.string(), "give the folder aclImdb, which has train and test");
  const std::vector<ReviewFile> files = review_files(folder);
  if (files.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("data folder \"{}\": has no reviews (ID_RATING.txt)", folder.string()));
  }
  for (const ReviewFile& file : files) {
    texts.push_back({.text = data::read_whole_text(file.path), .label = label});
  }
}

std::int64_t label_of_sentiment(std::string_view sentiment,
                                const std::string& path,
                                std::int64_t line) {
  if (sentiment == "negative" || sentiment == "positive") {
    return sentiment == "positive" ? 1 : 0;
  }
  throw Error(ErrorCode::kCorruptData,
              fmt::format("{}: line {}: the sentiment is \"{}\", neither negative nor positive",
                          path,
                          line,
                          sentiment.substr(0, 40)));
}

}  // namespace

std::vector<LabeledText> read_labeled_tsv(const std::string& path) {
  data::LineSource lines(path);
  std::vector<LabeledText> texts;
  while (std::optional<std::string> line = lines.next()) {
    const std::size_t tab = line->find('\t');
    const std::optional<std::int64_t> label =
        tab == std::string::npos ? std::nullopt : number_of(line->substr(0, tab));
    if (!label) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: line {}: does not begin with a label and a TAB, but with \"{}\"",
                              path,
                              lines.line(),
                              line->substr(0, 40)));
    }
    line->erase(0, tab + 1);
    texts.push_back({.text = std::move(*line), .label = *label});
  }
  return texts;
}

std::vector<LabeledText> read_imdb_csv(const std::string& path) {
  CsvReader reader(path);
  const std::size_t review = reader.column("review");
  const std::size_t sentiment = reader.column("sentiment");
  std::vector<LabeledText> texts;
  while (std::optional<std::vector<std::string>> fields = reader.next()) {
    const std::int64_t label = label_of_sentiment((*fields)[sentiment], path, reader.line());
    texts.push_back({.text = std::move((*fields)[review]), .label = label});
  }
  return texts;
}

std::vector<LabeledText> load_acl_imdb(const std::string& folder, Split split) {
  const fs::path part = fs::path(folder) / (split == Split::kTrain ? "train" : "test");
  std::vector<LabeledText> texts;
  append_reviews(part / "neg", 0, texts);
  append_reviews(part / "pos", 1, texts);
  return texts;
}

}  // namespace unisono
