#include "unisono/datasets/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/file.h"
#include "unisono/base/log.h"
#include "unisono/base/text.h"
#include "unisono/datasets/csv.h"
#include "unisono/datasets/data_files.h"
#include "unisono/datasets/idx.h"

namespace unisono::datasets {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kShownBytes = 40;

// The text as a number from 0; an empty optional for other text.
std::optional<std::int64_t> number_of(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = problem == std::errc() && end == text.data() + text.size() && number >= 0;
  return is_number ? std::optional(number) : std::nullopt;
}

// The lines of a file, joined by LF.
std::string read_review(const std::string& path) {
  constexpr std::size_t kMaxBytes = TextLines::kMaxLineBytes;
  TextLines lines = open_text(path);
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

// The files of a class by id. The id is the part of the name before the first "_".
std::vector<ReviewFile> review_files(const fs::path& root,
                                     const std::string& below,
                                     LeftOut& left_out) {
  std::vector<ReviewFile> files;
  for (const std::string& name : list_folder(root, below, left_out).others) {
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
  check_data_folder(folder, "give the folder aclImdb, which has train and test");
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
  TextLines lines = open_text(path);
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
  left_out.report(base::Logger("data"), fmt::format("data folder \"{}\"", root.string()));
  return texts;
}

namespace {

constexpr std::string_view kLineBreak = "<br />";

// Unlike std::isspace() and std::tolower(), these functions do not depend on the locale.
bool is_space(char character) {
  return std::string_view(" \t\n\v\f\r").find(character) != std::string_view::npos;
}

char to_lower(char character) {
  return character >= 'A' && character <= 'Z' ? static_cast<char>(character - 'A' + 'a')
                                              : character;
}

bool starts_with_line_break(std::string_view text) {
  if (text.size() < kLineBreak.size()) {
    return false;
  }
  for (std::size_t i = 0; i < kLineBreak.size(); ++i) {
    if (to_lower(text[i]) != kLineBreak[i]) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<std::string> tokenize(std::string_view text) {
  constexpr std::string_view kOwnTokens = "'.,()!?";
  constexpr std::string_view kSeparators = ";:";
  std::vector<std::string> tokens;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) {
      tokens.push_back(std::exchange(word, {}));
    }
  };
  while (!text.empty()) {
    const char character = text.front();
    std::size_t n_used = 1;
    if (is_space(character) || kSeparators.find(character) != std::string_view::npos) {
      end_word();
    } else if (kOwnTokens.find(character) != std::string_view::npos) {
      end_word();
      tokens.emplace_back(1, character);
    } else if (starts_with_line_break(text)) {
      end_word();
      n_used = kLineBreak.size();
    } else if (character != '"') {
      word += to_lower(character);
    }
    text.remove_prefix(n_used);
  }
  end_word();
  return tokens;
}

PaddedBatch PadToLongest::operator()(const std::vector<TokenSample>& samples) const {
  std::size_t longest = 0;
  for (const TokenSample& sample : samples) {
    longest = std::max(longest, sample.tokens.size());
  }
  PaddedBatch batch{.longest = static_cast<std::int64_t>(longest),
                    .tokens = std::vector<std::int64_t>(samples.size() * longest, pad_token),
                    .lengths = {},
                    .labels = {}};
  auto row = batch.tokens.begin();
  for (const TokenSample& sample : samples) {
    std::ranges::copy(sample.tokens, row);
    row += static_cast<std::ptrdiff_t>(longest);
    batch.lengths.push_back(static_cast<std::int64_t>(sample.tokens.size()));
    batch.labels.push_back(sample.label);
  }
  return batch;
}

namespace {

constexpr const char* kPadText = "<pad>";
constexpr const char* kUnknownText = "<unk>";
constexpr std::size_t kSpecialTokens = 2;

struct CountedToken {
  std::string token;
  std::int64_t count;
};

std::vector<CountedToken> count_tokens(std::span<const LabeledText> texts) {
  std::unordered_map<std::string, std::int64_t> counts;
  for (const LabeledText& text : texts) {
    for (std::string& token : tokenize(text.text)) {
      ++counts[std::move(token)];
    }
  }
  // Occurrences of these tokens in texts do not add tokens.
  counts.erase(kPadText);
  counts.erase(kUnknownText);
  std::vector<CountedToken> counted;
  counted.reserve(counts.size());
  for (const auto& [token, count] : counts) {
    counted.push_back({.token = token, .count = count});
  }
  std::ranges::sort(counted, [](const CountedToken& one, const CountedToken& other) {
    return std::pair(-one.count, std::string_view(one.token)) <
           std::pair(-other.count, std::string_view(other.token));
  });
  return counted;
}

}  // namespace

Vocabulary Vocabulary::of(std::span<const LabeledText> texts, const VocabularyOptions& options) {
  std::vector<std::string> tokens{kPadText, kUnknownText};
  if (options.max_tokens < tokens.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("Vocabulary: max_tokens is {}; {} and {} need room",
                            options.max_tokens,
                            kPadText,
                            kUnknownText));
  }
  for (CountedToken& counted : count_tokens(texts)) {
    if (tokens.size() == options.max_tokens || counted.count < options.min_count) {
      break;
    }
    tokens.push_back(std::move(counted.token));
  }
  return Vocabulary(std::move(tokens));
}

Vocabulary::Vocabulary(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
  if (tokens_.size() < kSpecialTokens) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("Vocabulary: {} tokens; the first two pad and stand for unknown ones",
                            tokens_.size()));
  }
  for (std::size_t number = 0; number < tokens_.size(); ++number) {
    if (!numbers_.try_emplace(tokens_[number], static_cast<std::int64_t>(number)).second) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "Vocabulary: token {}, \"{}\", occurs twice", number, escape_text(tokens_[number])));
    }
  }
}

std::int64_t Vocabulary::number(std::string_view token) const {
  const auto found = numbers_.find(token);
  return found == numbers_.end() ? kUnknown : found->second;
}

std::vector<std::int64_t> Vocabulary::encode(std::string_view text, std::size_t max_tokens) const {
  std::vector<std::int64_t> numbers;
  for (const std::string& token : tokenize(text)) {
    if (numbers.size() == max_tokens) {
      break;
    }
    numbers.push_back(number(token));
  }
  return numbers;
}

TextDataset::TextDataset(std::span<const LabeledText> texts,
                         const Vocabulary& vocabulary,
                         std::size_t max_tokens) {
  samples_.reserve(texts.size());
  for (const LabeledText& text : texts) {
    samples_.push_back({.tokens = vocabulary.encode(text.text, max_tokens), .label = text.label});
  }
}

std::vector<std::int64_t> TextDataset::lengths() const {
  std::vector<std::int64_t> lengths;
  lengths.reserve(samples_.size());
  for (const TokenSample& sample : samples_) {
    lengths.push_back(static_cast<std::int64_t>(sample.tokens.size()));
  }
  return lengths;
}

}  // namespace unisono::datasets
