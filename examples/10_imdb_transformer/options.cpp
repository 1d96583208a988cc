#include "options.h"

#include <string>

#include <unisono/unisono.h>

#include "../command_line.h"

namespace imdb {

void add_model_options(CLI::App& app, Options& options) {
  examples::add_positive(app,
                         "--max-length",
                         options.max_length,
                         "Maximum number of tokens of a review; the rest is cut off");
  examples::add_positive(app, "--nlayers", options.nlayers, "Layers of the transformer");
  examples::add_positive(app, "--ntokens", options.ntokens, "Maximum number of different tokens");
  examples::add_positive(app, "--d-model", options.d_model, "Features of a token");
  examples::add_positive(
      app, "--d-hid", options.d_hid, "Features between the two linear layers of a layer");
  examples::add_positive(app, "--n-head", options.n_head, "Heads of attention");
  app.add_option("--dropout", options.dropout, "Share of the features that training leaves out")
      ->check(CLI::Range(0.0, 0.99))
      ->capture_default_str();
  examples::add_positive(app, "--chunks", options.chunks, "Parts into which a batch is divided");
  examples::add_positive(
      app, "--batch-size", options.batch_size, "Reviews per step of each replica of the model");
  examples::add_non_negative(
      app, "--seed", options.seed, "Seed of the initial weights, dropout and order");
}

void add_options(CLI::App& app, Options& options) {
  CLI::Option* const data =
      app.add_option(
             "--data",
             options.data,
             "Folder with imdb_subset_{train,test}_5000.tsv.gz, or aclImdb as it is distributed")
          ->capture_default_str();
  app.add_flag("--generated", options.is_generated, "Train on generated reviews")->excludes(data);
  examples::add_non_negative(app, "--limit", options.limit, "Number of reviews to use; 0: all");
  add_model_options(app, options);
  examples::add_positive(app, "--epochs", options.epochs, "Passes over the training reviews");
  examples::add_positive(app, "--lr", options.lr, "Highest learning rate of AdamW");
  CLI::Option* const model_path =
      app.add_option("--model-path", options.model_path, "File of the trained model");
  app.add_flag("--load-model", options.loads_model, "Begin with the model in that file")
      ->needs(model_path);
}

void check(const Options& options) {
  if (options.d_model % (2 * options.n_head) != 0) {
    throw unisono::Error(unisono::ErrorCode::kInvalidArgument,
                         "--d-model " + std::to_string(options.d_model) +
                             " is not a multiple of twice --n-head " +
                             std::to_string(options.n_head));
  }
}

}  // namespace imdb
