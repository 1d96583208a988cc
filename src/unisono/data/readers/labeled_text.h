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
/// The text is UTF-8 with or without a byte order mark; lines end in LF or CR LF; empty lines at
/// the end are skipped.
///
/// Throws Error: kNotFound, kSystem; kInvalidArgument for a folder or device; kCorruptData, with
/// file and line, where a label is missing or no number, for a CR without LF, for a line of more
/// than 16 MiB, and for another encoding.
[[nodiscard]] std::vector<LabeledText> read_labeled_tsv(const std::string& path);

/// Reads movie reviews as a CSV file with the columns "review" and "sentiment", which is "negative"
/// (0) or "positive" (1); other columns are skipped.
///
/// Throws Error as CsvReader, and kCorruptData, with file and line, for another sentiment.
[[nodiscard]] std::vector<LabeledText> read_imdb_csv(const std::string& path);

/// Reads the training or test part of the Large Movie Review Dataset from its folder aclImdb, or
/// from the folder that aclImdb is in: the files train/neg/ID_RATING.txt (label 0), then
/// train/pos/... (label 1), each in the order of the ids. A text has its file's lines with LF
/// between them. Other files are left out; one line of the log counts them.
///
/// Throws Error: kNotFound when a folder is not there or has no reviews; kCorruptData for a name of
/// another form and, with file and line, for texts that are refused as in read_labeled_tsv();
/// kSystem.
///
/// Source: Maas et al., "Learning Word Vectors for Sentiment Analysis", ACL 2011.
[[nodiscard]] std::vector<LabeledText> load_acl_imdb(const std::string& folder, Split split);

}  // namespace unisono
