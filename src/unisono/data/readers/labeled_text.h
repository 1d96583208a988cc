#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "unisono/data/readers/split.h"

namespace unisono {

struct LabeledText {
  std::string text;
  std::int64_t label = 0;
};

/// Reads a file of a text a line: label, TAB, text; plain or gzip. Labels are whole numbers from 0.
///
/// Throws Error: kNotFound, kSystem; kInvalidArgument for a folder or device; kCorruptData, with
/// file and line, where a label is missing or no number, and for a line of more than 16 MiB.
[[nodiscard]] std::vector<LabeledText> read_labeled_tsv(const std::string& path);

/// Reads movie reviews as a CSV file with the columns "review" and "sentiment", which is "negative"
/// (0) or "positive" (1); other columns are skipped.
///
/// Throws Error as CsvReader, and kCorruptData, with file and line, for another sentiment.
[[nodiscard]] std::vector<LabeledText> read_imdb_csv(const std::string& path);

/// Reads the training or test part of the Large Movie Review Dataset from its folder aclImdb: the
/// files train/neg/ID_RATING.txt (label 0), then train/pos/... (label 1), each in the order of the
/// ids.
///
/// Throws Error: kNotFound when a folder is not there or has no reviews; kCorruptData for a name of
/// another form; kSystem.
///
/// Source: Maas et al., "Learning Word Vectors for Sentiment Analysis", ACL 2011.
[[nodiscard]] std::vector<LabeledText> load_acl_imdb(const std::string& folder, Split split);

}  // namespace unisono
