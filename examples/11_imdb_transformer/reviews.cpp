#include "reviews.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "unisono/data/pad_to_longest.h"
#include "unisono/data/random.h"
#include "unisono/data/readers/labeled_text.h"
#include "unisono/data/readers/split.h"
#include "unisono/data/readers/text_dataset.h"
#include "unisono/data/readers/tokenizer.h"
#include "unisono/data/readers/vocabulary.h"

#include "options.h"

namespace imdb {
namespace {

using Texts = std::vector<unisono::LabeledText>;

constexpr std::int64_t kGenerated = 1000;

// Of 10 to 39 words each, a fifth of which say what the review thinks, most of them truly.
Texts generate(std::int64_t seed, std::int64_t n_texts) {
  Texts texts;
  for (std::int64_t i = 0; i < n_texts; ++i) {
    unisono::Random random = unisono::Random::of_sample(seed, 0, i);
    unisono::LabeledText review{.text = {}, .label = i % 2};
    for (std::uint64_t left = 10 + random.below(30); left > 0; --left) {
      const std::uint64_t kind = random.below(25);
      const bool is_good = (review.label == 1) != (kind == 0);
      review.text += kind >= 5 ? "word" : is_good ? "good" : "bad";
      review.text += std::to_string(random.below(kind >= 5 ? 500 : 20)) + " ";
    }
    texts.push_back(review);
  }
  return texts;
}

Texts read(const std::string& folder, unisono::Split split) {
  const char* const name = split == unisono::Split::kTrain ? "train" : "test";
  if (std::filesystem::is_directory(std::filesystem::path(folder) / name)) {
    return unisono::load_acl_imdb(folder, split);
  }
  return unisono::read_labeled_tsv(folder + "/imdb_subset_" + name + "_5000.tsv.gz");
}

// Files alternate or sort by label, so every k-th review is as good a sample as any.
Texts load(const Options& options, unisono::Split split) {
  Texts texts = options.is_generated
                    ? generate(options.seed * 2 + (split == unisono::Split::kTest ? 1 : 0),
                               options.limit > 0 ? options.limit : kGenerated)
                    : read(options.data, split);
  const auto n_wanted = static_cast<std::size_t>(options.limit);
  if (n_wanted > 0 && n_wanted < texts.size()) {
    texts.resize(n_wanted);
  }
  for (unisono::LabeledText& review : texts) {
    if (unisono::tokenize(review.text).empty()) {
      review.text = ".";  // attention needs a token to look at
    }
  }
  return texts;
}

}  // namespace

Reviews load_reviews(const Options& options) {
  const Texts train = load(options, unisono::Split::kTrain);
  const auto vocabulary = unisono::Vocabulary::of(train, {.max_tokens = options.ntokens});
  const auto encode = [&](const Texts& texts) {
    return std::make_shared<const unisono::TextDataset>(texts, vocabulary, options.max_length);
  };
  return {.train = encode(train),
          .test = encode(load(options, unisono::Split::kTest)),
          .ntokens = vocabulary.ntokens()};
}

}  // namespace imdb
