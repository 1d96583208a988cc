#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace unisono::cli {

/// Adds `unisono run`; its exit code goes to `exit_code` when it was called.
void add_run_command(CLI::App& app, int& exit_code);

/// Adds `unisono config`, which prints the table of settings.
void add_config_command(CLI::App& app);

}  // namespace unisono::cli
