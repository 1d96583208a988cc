#include "reviews.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <unisono/datasets.h>
#include <unisono/unisono.h>

#include "options.h"

namespace datasets = unisono::datasets;

namespace imdb {
namespace {

using Texts = std::vector<datasets::LabeledText>;

constexpr std::int64_t kGenerated = 1000;

// Generates reviews of 10 to 39 words. A fifth of the words express an opinion, most of these words
// the opinion of the label.
Texts generate(std::int64_t seed, std::int64_t n_texts) {
  Texts texts;
  for (std::int64_t i = 0; i < n_texts; ++i) {
    unisono::data::Random random = unisono::data::Random::of_sample(seed, 0, i);
    datasets::LabeledText review{.text = {}, .label = i % 2};
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

Texts read(const std::string& folder, datasets::Split split) {
  const char* const name = split == datasets::Split::kTrain ? "train" : "test";
  if (std::filesystem::is_directory(std::filesystem::path(folder) / name)) {
    return datasets::load_acl_imdb(folder, split);
  }
  return datasets::read_labeled_tsv(folder + "/imdb_subset_" + name + "_5000.tsv.gz");
}

Texts load(const Options& options, datasets::Split split) {
  Texts texts = options.is_generated
                    ? generate(options.seed * 2 + (split == datasets::Split::kTest ? 1 : 0),
                               options.limit > 0 ? options.limit : kGenerated)
                    : read(options.data, split);
  const auto n_wanted = static_cast<std::size_t>(options.limit);
  if (n_wanted > 0 && n_wanted < texts.size()) {
    texts.resize(n_wanted);
  }
  for (datasets::LabeledText& review : texts) {
    if (datasets::tokenize(review.text).empty()) {
      review.text = ".";  // Attention needs at least one token.
    }
  }
  return texts;
}

}  // namespace

Reviews load_reviews(const Options& options) {
  const Texts train = load(options, datasets::Split::kTrain);
  const auto vocabulary = datasets::Vocabulary::of(train, {.max_tokens = options.ntokens});
  const auto encode = [&](const Texts& texts) {
    return std::make_shared<const datasets::TextDataset>(texts, vocabulary, options.max_length);
  };
  return {.train = encode(train),
          .test = encode(load(options, datasets::Split::kTest)),
          .ntokens = vocabulary.ntokens()};
}

void print_start(const Options& options, const Reviews& reviews, const std::string& ranks) {
  std::printf(
      "%lld training and %lld test reviews, %lld tokens, %s, batches of %d in %d "
      "chunk%s\n",
      static_cast<long long>(reviews.train->size()),
      static_cast<long long>(reviews.test->size()),
      static_cast<long long>(reviews.ntokens),
      ranks.c_str(),
      options.batch_size,
      options.chunks,
      options.chunks == 1 ? "" : "s");
  std::fflush(stdout);
}

void print_epoch(const Options& options,
                 const Epoch& epoch,
                 std::chrono::steady_clock::time_point start) {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("epoch %d/%d  loss %.4f  test accuracy %.2f%%  %.1f s\n",
              epoch.number + 1,
              options.epochs,
              epoch.loss,
              100 * epoch.accuracy,
              seconds.count());
  std::fflush(stdout);
}

}  // namespace imdb
