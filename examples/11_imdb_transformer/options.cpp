#include "options.h"

#include <limits>
#include <string>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>

#include "unisono/base/error.h"

namespace imdb {

void add_options(CLI::App& app, Options& options) {
  const CLI::Range positive(1, std::numeric_limits<int>::max());
  const auto add_number = [&](const std::string& name, auto& value, const std::string& help) {
    app.add_option(name, value, help)->check(positive)->capture_default_str();
  };
  CLI::Option* const data =
      app.add_option(
             "--data",
             options.data,
             "Folder with imdb_subset_{train,test}_5000.tsv.gz, or aclImdb as it is distributed")
          ->capture_default_str();
  app.add_flag("--generated", options.is_generated, "Train on made-up reviews")->excludes(data);
  app.add_option("--limit", options.limit, "Use only so many reviews; 0: all")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  add_number("--max-length", options.max_length, "Tokens of a review that are read");
  add_number("--nlayers", options.nlayers, "Layers of the transformer");
  add_number("--ntokens", options.ntokens, "Most different tokens");
  add_number("--d-model", options.d_model, "Features of a token");
  add_number("--d-hid", options.d_hid, "Features between the two linear layers of a layer");
  add_number("--n-head", options.n_head, "Heads of attention");
  app.add_option("--dropout", options.dropout, "Share of the features that training leaves out")
      ->check(CLI::Range(0.0, 0.99))
      ->capture_default_str();
  add_number("--chunks", options.chunks, "Parts of a batch that are computed one by one");
  add_number("--batch-size", options.batch_size, "Reviews per step of each replica of the model");
  add_number("--epochs", options.epochs, "Passes over the training reviews");
  app.add_option("--lr", options.lr, "Highest learning rate of AdamW")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of the initial weights, dropout and order")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  CLI::Option* const model_path =
      app.add_option("--model-path", options.model_path, "Where the trained model is saved");
  app.add_flag("--load-model", options.loads_model, "Begin with the model that is there")
      ->needs(model_path);
}

void check(const Options& options) {
  if (options.d_model % (2 * options.n_head) != 0) {
    throw unisono::Error(unisono::ErrorCode::kInvalidArgument,
                         "--d-model " + std::to_string(options.d_model) +
                             " is no multiple of twice --n-head " + std::to_string(options.n_head));
  }
}

}  // namespace imdb
