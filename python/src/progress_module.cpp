#include "progress_module.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include "unisono/base/error.h"
#include "unisono/report/progress.h"

namespace unisono::python {
namespace {

namespace py = pybind11;
using Values = std::vector<std::pair<std::string, double>>;

std::vector<report::NamedValue> named(const Values& values) {
  std::vector<report::NamedValue> result;
  for (const auto& [name, value] : values) {
    result.push_back({.name = name, .value = value});
  }
  return result;
}

report::ProgressFormat format_of(const std::string& name) {
  static const std::map<std::string, report::ProgressFormat> formats{
      {"auto", report::ProgressFormat::kAuto},
      {"lines", report::ProgressFormat::kLines},
      {"json", report::ProgressFormat::kJson},
      {"none", report::ProgressFormat::kNone}};
  const auto format = formats.find(name);
  if (format == formats.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                "Progress: format is '" + name + "'; it may be auto, lines, json or none");
  }
  return format->second;
}

std::unique_ptr<report::Progress> make_progress(int rank,
                                                int world_size,
                                                std::int64_t total,
                                                std::int64_t start,
                                                const std::string& unit,
                                                const std::string& title,
                                                const std::string& format,
                                                std::chrono::milliseconds interval,
                                                int fd,
                                                const std::string& json_file,
                                                const std::string& tensorboard,
                                                std::int64_t record_every,
                                                bool all_ranks) {
  return std::make_unique<report::Progress>(rank,
                                            world_size,
                                            report::ProgressOptions{.total = total,
                                                                    .start = start,
                                                                    .unit = unit,
                                                                    .title = title,
                                                                    .format = format_of(format),
                                                                    .interval = interval,
                                                                    .fd = fd,
                                                                    .json_file = json_file,
                                                                    .tensorboard = tensorboard,
                                                                    .record_every = record_every,
                                                                    .all_ranks = all_ranks});
}

}  // namespace

void define_progress(py::module_& module) {
  using Released = py::call_guard<py::gil_scoped_release>;
  py::class_<report::Progress>(module, "_Progress")
      .def(py::init(&make_progress),
           py::kw_only(),
           py::arg("rank"),
           py::arg("world_size"),
           py::arg("total"),
           py::arg("start"),
           py::arg("unit"),
           py::arg("title"),
           py::arg("format"),
           py::arg("interval"),
           py::arg("fd"),
           py::arg("json_file"),
           py::arg("tensorboard"),
           py::arg("record_every"),
           py::arg("all_ranks"))
      .def(
          "step",
          [](report::Progress& progress, const Values& values, std::int64_t n_samples) {
            progress.step(named(values), n_samples);
          },
          Released())
      .def(
          "record",
          [](report::Progress& progress, const Values& values) { progress.record(named(values)); },
          Released())
      .def("set_title", &report::Progress::set_title)
      .def(
          "print",
          [](report::Progress& progress, const std::string& line) { progress.print(line); },
          Released())
      .def("clear", &report::Progress::clear, Released())
      .def("n_steps", &report::Progress::n_steps)
      .def("finish", &report::Progress::finish, Released());
}

}  // namespace unisono::python
