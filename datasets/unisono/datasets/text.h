#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "unisono/datasets/idx.h"

namespace unisono::datasets {

/// A text and the number of its class.
struct LabeledText {
  std::string text;
  std::int64_t label = 0;
};

/// Reads a file with one text per line: label, TAB, text; plain or gzip. Labels are integers from
/// 0. The text is UTF-8 with or without a byte order mark; lines end in LF or CR LF; empty lines at
/// the end are skipped.
///
/// Throws Error: kNotFound, kSystem; kInvalidArgument for a folder or device; kCorruptData, with
/// file and line, for a missing or invalid label, a CR without LF, a line of more than 16 MiB, and
/// another encoding.
[[nodiscard]] std::vector<LabeledText> read_labeled_tsv(const std::string& path);

/// Reads movie reviews from a CSV file with the columns "review" and "sentiment". A sentiment is
/// "negative" (0) or "positive" (1); other columns are skipped.
///
/// Throws Error as CsvReader, and kCorruptData, with file and line, for another sentiment.
[[nodiscard]] std::vector<LabeledText> read_imdb_csv(const std::string& path);

/// Reads the training or test part of the Large Movie Review Dataset from the folder aclImdb or the
/// parent of aclImdb: the files train/neg/ID_RATING.txt (label 0), then train/pos/... (label 1), in
/// the order of the ids. LF separates the lines of a text. Other files are left out; one line of
/// the log counts them.
///
/// Throws Error: kNotFound for a missing folder or a folder without reviews; kCorruptData for a
/// name of another form and, with file and line, for text errors of read_labeled_tsv(); kSystem.
///
/// Source: Maas et al., "Learning Word Vectors for Sentiment Analysis", ACL 2011.
[[nodiscard]] std::vector<LabeledText> load_acl_imdb(const std::string& folder, Split split);

/// Splits an English text into words and punctuation marks, in lower case.
///
/// The tokens of ASCII text equal those of torchtext's "basic_english": ' . , ( ) ! ? are separate
/// tokens; ; : and <br /> separate words and are removed; " is removed. Bytes beyond ASCII do not
/// change.
[[nodiscard]] std::vector<std::string> tokenize(std::string_view text);

/// The numbers of the tokens of a text, and the label of the text.
struct TokenSample {
  std::vector<std::int64_t> tokens;
  std::int64_t label = 0;
};

/// The texts of a batch as the rows of a table. The longest text sets the number of columns.
struct PaddedBatch {
  std::int64_t longest = 0;           ///< Number of columns.
  std::vector<std::int64_t> tokens;   ///< size() * longest numbers, row by row.
  std::vector<std::int64_t> lengths;  ///< Number of tokens of each text without padding.
  std::vector<std::int64_t> labels;

  /// Number of rows.
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(lengths.size()); }

  /// Tokens of a text with padding. `place` is below size().
  [[nodiscard]] std::span<const std::int64_t> row(std::size_t place) const {
    const auto n_columns = static_cast<std::size_t>(longest);
    return std::span(tokens).subspan(place * n_columns, n_columns);
  }
};

/// Collates texts of different lengths for CollatingLoader.
struct PadToLongest {
  std::int64_t pad_token = 0;

  [[nodiscard]] PaddedBatch operator()(const std::vector<TokenSample>& samples) const;
};

/// Limits of a vocabulary.
struct VocabularyOptions {
  /// Limit of the number of tokens, padding and unknown token included.
  std::size_t max_tokens = 20'000;
  /// Tokens with a lower count become unknown tokens.
  std::int64_t min_count = 1;
};

/// Numbers of tokens. Number 0 is padding, number 1 any unknown token. Thread-safe.
class Vocabulary {
 public:
  static constexpr std::int64_t kPad = 0;
  static constexpr std::int64_t kUnknown = 1;

  /// Builds a vocabulary of the most frequent tokens of the texts, ordered by falling count and
  /// then by bytes. The order of the texts makes no difference, so all ranks get the same
  /// vocabulary.
  ///
  /// Throws Error(kInvalidArgument) for a max_tokens below 2.
  [[nodiscard]] static Vocabulary of(std::span<const LabeledText> texts,
                                     const VocabularyOptions& options = {});

  /// Restores a vocabulary from the saved result of tokens().
  ///
  /// Throws Error(kInvalidArgument) for a duplicate token or less than two tokens.
  explicit Vocabulary(std::vector<std::string> tokens);

  /// Number of tokens: the rows of an embedding.
  [[nodiscard]] std::int64_t ntokens() const { return static_cast<std::int64_t>(tokens_.size()); }

  /// All tokens, by number.
  [[nodiscard]] const std::vector<std::string>& tokens() const { return tokens_; }

  /// Number of a token; kUnknown for a token outside the vocabulary.
  [[nodiscard]] std::int64_t number(std::string_view token) const;

  /// Numbers of the first `max_tokens` tokens of a text.
  [[nodiscard]] std::vector<std::int64_t> encode(std::string_view text,
                                                 std::size_t max_tokens = SIZE_MAX) const;

 private:
  // Allows the lookup of a std::string by std::string_view.
  struct Hash {
    using is_transparent = void;

    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> numbers_;
};

/// Texts in memory as token numbers, a source for CollatingLoader with PadToLongest. Thread-safe.
class TextDataset {
 public:
  /// Keeps the first `max_tokens` of each text, with 8 bytes per token.
  TextDataset(std::span<const LabeledText> texts,
              const Vocabulary& vocabulary,
              std::size_t max_tokens = SIZE_MAX);

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(samples_.size()); }

  /// Text `index`, 0 <= index < size().
  [[nodiscard]] const TokenSample& sample(std::int64_t index) const {
    return samples_[static_cast<std::size_t>(index)];
  }

  /// Number of tokens of each text, the input of LengthBucketedSampler.
  [[nodiscard]] std::vector<std::int64_t> lengths() const;

 private:
  std::vector<TokenSample> samples_;
};

}  // namespace unisono::datasets
