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
#include "unisono/base/left_behind.h"
#include "unisono/base/log.h"
#include "unisono/base/text_lines.h"
#include "unisono/data/readers/csv.h"
#include "unisono/data/readers/data_folder.h"
#include "unisono/data/readers/file_source.h"
#include "unisono/data/readers/split.h"

namespace unisono {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShownBytes = 40;

// The whole text as a number from 0; nothing where it is none.
std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = problem == std::errc() && end == text.data() + text.size() && number >= 0;
  return is_number ? std::optional(number) : std::nullopt;
}

// The lines of a file, without the end of the last one.
std::string read_review(const std::string& path) {
  constexpr std::size_t kMaxBytes = TextLines::kMaxLineBytes;
  TextLines lines = data::open_text(path);
  std::string text;
  while (const std::optional<std::string> line = lines.next()) {
    text += (lines.line() > 1 ? "\n" : "") + *line;
    if (text.size() > kMaxBytes) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: has more than {} bytes; is it a review?", path, kMaxBytes));
    }
  }
  return text;
}

struct ReviewFile {
  std::int64_t id;
  std::string path;

  friend auto operator<=>(const ReviewFile&, const ReviewFile&) = default;
};

// Files of one class, by id, which the name has before its first "_".
std::vector<ReviewFile> review_files(const fs::path& root,
                                     const std::string& below,
                                     LeftOut& left_out) {
  std::vector<ReviewFile> files;
  for (const std::string& name : data::list_folder(root, below, left_out).others) {
    const fs::path path = root / below / name;
    if (path.extension() != ".txt") {
      left_out.add((fs::path(below) / name).string());
      continue;
    }
    const std::optional<std::int64_t> id = number_of(name.substr(0, name.find('_')));
    if (!id) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: the name is not of the form ID_RATING.txt", path.string()));
    }
    files.push_back({.id = *id, .path = path.string()});
  }
  std::ranges::sort(files);
  return files;
}

void append_reviews(const fs::path& root,
                    const std::string& below,
                    std::int64_t label,
                    LeftOut& left_out,
                    std::vector<LabeledText>& texts) {
  const std::string folder = (root / below).string();
  data::check_data_folder(folder, "give the folder aclImdb, which has train and test");
  const std::vector<ReviewFile> files = review_files(root, below, left_out);
  if (files.empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("data folder \"{}\": has no reviews (ID_RATING.txt)", folder));
  }
  for (const ReviewFile& file : files) {
    texts.push_back({.text = read_review(file.path), .label = label});
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
                          escape_text(sentiment, kShownBytes)));
}

}  // namespace

std::vector<LabeledText> read_labeled_tsv(const std::string& path) {
  TextLines lines = data::open_text(path);
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
                              escape_text(*line, kShownBytes)));
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
  const std::string part = split == Split::kTrain ? "train" : "test";
  std::error_code unreadable;
  const fs::path here = folder;
  const fs::path inner = here / "aclImdb";
  const bool is_inner = !fs::exists(here / part, unreadable) && fs::exists(inner, unreadable);
  const fs::path root = is_inner ? inner : here;
  LeftOut left_out;
  std::vector<LabeledText> texts;
  append_reviews(root, part + "/neg", 0, left_out, texts);
  append_reviews(root, part + "/pos", 1, left_out, texts);
  left_out.report(Logger("data"), fmt::format("data folder \"{}\"", root.string()));
  return texts;
}

}  // namespace unisono
