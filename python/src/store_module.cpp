#include "store_module.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "unisono/base/config.h"
#include "unisono/net/host.h"
#include "unisono/rendezvous/find_launch_info.h"
#include "unisono/rendezvous/launchers/variables.h"
#include "unisono/rendezvous/resolve_rendezvous.h"

#include "core_store.h"
#include "errors.h"
#include "meet_ranks.h"
#include "open_store.h"
#include "store_watch.h"

namespace unisono::python {
namespace {

namespace py = pybind11;
using Timeout = std::chrono::milliseconds;

// Returns the result of `function`, called without the GIL.
template <class Function>
auto without_the_gil(Function&& function) {
  return with_store_errors([&] {
    const py::gil_scoped_release released;
    return function();
  });
}

c10::intrusive_ptr<CoreStore> make_store(const std::string& host,
                                         int port,
                                         std::optional<int> world_size,
                                         bool is_master,
                                         Timeout timeout,
                                         bool wait_for_workers,
                                         const std::optional<std::string>& secret,
                                         std::optional<bool> tls) {
  return without_the_gil([&] {
    return c10::make_intrusive<CoreStore>(open_store({.host = host,
                                                      .port = port,
                                                      .world_size = world_size,
                                                      .is_master = is_master,
                                                      .timeout = timeout,
                                                      .wait_for_workers = wait_for_workers,
                                                      .secret = secret,
                                                      .tls = tls}),
                                          timeout);
  });
}

std::unique_ptr<StoreWatch> watch(const CoreStore& store,
                                  const std::string& key,
                                  py::function on_change) {
  return with_store_errors([&] {
    return std::make_unique<StoreWatch>(store.access().store, key, std::move(on_change));
  });
}

RankMeeting meet(const std::string& method, int rank, int world_size, Timeout timeout) {
  return without_the_gil([&] {
    return meet_ranks({.init_method = method,
                       .given = {.rank = rank, .world_size = world_size},
                       .timeout = timeout});
  });
}

}  // namespace

void define_stores(py::module_& module) {
  py::class_<StoreWatch>(module, "Watch")
      .def("close", [](StoreWatch& self) { with_store_errors([&] { self.close(); }); })
      .def("__enter__", [](py::object self) { return self; })
      .def("__exit__", [](StoreWatch& self, const py::args& /*error*/) {
        with_store_errors([&] { self.close(); });
      });
  py::class_<CoreStore, c10d::Store, c10::intrusive_ptr<CoreStore>>(module, "Store")
      .def(py::init(&make_store),
           py::arg("host_name"),
           py::arg("port"),
           py::arg("world_size") = py::none(),
           py::arg("is_master") = false,
           py::arg("timeout") = Timeout(c10d::Store::kDefaultTimeout),
           py::arg("wait_for_workers") = true,
           py::kw_only(),
           py::arg("secret") = py::none(),
           py::arg("tls") = py::none())
      .def_property_readonly("host", [](const CoreStore& self) { return self.access().host; })
      .def_property_readonly("port", [](const CoreStore& self) { return self.access().port; })
      .def("watch", &watch, py::arg("key"), py::arg("on_change"));
  py::class_<RankMeeting>(module, "_RankMeeting")
      .def_readonly("store", &RankMeeting::store)
      .def_readonly("rank", &RankMeeting::rank)
      .def_readonly("world_size", &RankMeeting::world_size);
  module.def("_meet_ranks",
             &meet,
             py::arg("method"),
             py::arg("rank"),
             py::arg("world_size"),
             py::arg("timeout"));
  module.def("_launcher_name", [] { return rendezvous::launcher_name(process_environment()); });
  module.def("_elastic_launcher",
             [] { return rendezvous::elastic_launcher(process_environment()); });
  module.def("_describe_host_fault",
             [](const std::string& host) { return net::describe_host_fault(host); });
  module.def("_has_agent_store", [] { return rendezvous::has_agent_store(process_environment()); });
  module.def("_close_watches", &StoreWatch::close_all);
}

}  // namespace unisono::python
