"""Plants one violation of each sort in a small tree, and expects check_layers to name it."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import check_layers

TREE = {
    "CMakeLists.txt": "add_subdirectory(base)\nadd_subdirectory(net)\nadd_subdirectory(store)\n"
    "if(X)\n  add_subdirectory(torch)\nendif()\n",
    "base/CMakeLists.txt": "unisono_library(base HEADERS error.h SOURCES error.cpp # ground\n)\n",
    "base/error.h": "#include <string>\n",
    "base/error.cpp": '#include "unisono/base/error.h"\n#include <fmt/core.h>\n',
    "net/CMakeLists.txt": "unisono_library(\n  net\n  HEADERS socket.h\n  PRIVATE_HEADERS loop.h\n"
    "  SOURCES socket.cpp\n  LINKS unisono::base\n)\n"
    "unisono_test(net_test SOURCES socket_test.cpp LINKS unisono::net)\n",
    "net/socket.h": '#include "unisono/base/error.h"\n',
    "net/loop.h": "#include <sys/epoll.h>\n",
    "net/socket.cpp": '#include "unisono/net/loop.h"\n',
    "net/socket_test.cpp": '#include <gtest/gtest.h>\n#include "unisono/base/error.h"\n',
    "store/CMakeLists.txt": "unisono_library(store HEADERS store.h SOURCES store.cpp\n"
    "  LINKS unisono::base\n  PRIVATE_LINKS unisono::net OpenSSL::Crypto)\n",
    "store/store.h": '#include "unisono/base/error.h"\n',
    "store/store.cpp": '#include "unisono/net/socket.h"\n',
    "torch/CMakeLists.txt": "unisono_library(torch HEADERS tensor.h SOURCES tensor.cpp LINKS "
    "unisono::store)\n",
    "torch/tensor.h": '#include <ATen/core/Tensor.h>\n#include "unisono/store/store.h"\n',
    "torch/tensor.cpp": "#include <torch/torch.h>\n",
    "datasets/CMakeLists.txt": "unisono_library(datasets HEADERS unisono/datasets.h "
    "unisono/datasets/csv.h\n  SOURCES unisono/datasets/csv.cpp LINKS unisono::base)\n",
    "datasets/unisono/datasets.h": '#include "unisono/datasets/csv.h"\n',
    "datasets/unisono/datasets/csv.h": '#include "unisono/base/error.h"\n',
    "datasets/unisono/datasets/csv.cpp": '#include "unisono/datasets/csv.h"\n',
}


class CheckLayersTest(unittest.TestCase):
    def problems(self, changes):
        """Checks the tree with some files replaced."""
        tree = TREE | changes
        with tempfile.TemporaryDirectory() as folder:
            for name, text in tree.items():
                path = Path(folder) / ("" if name.startswith("datasets/") else "src/unisono") / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check_layers.Layers(Path(folder)).check()

    def expect(self, expected, changes):
        problems = self.problems(changes)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(expected, problems[0])

    def test_accepts_a_correct_tree(self):
        self.assertEqual(self.problems({}), [])

    def test_include_of_a_library_that_is_not_linked(self):
        self.expect(
            "src/unisono/net/socket.cpp:2: net includes unisono/store/store.h of unisono::store",
            {"net/socket.cpp": '\n#include "unisono/store/store.h"\n'},
        )

    def test_public_header_that_includes_a_privately_linked_library(self):
        self.expect(
            "src/unisono/store/store.h:1: store includes unisono/net/socket.h of unisono::net",
            {"store/store.h": '#include "unisono/net/socket.h"\n'},
        )

    def test_test_that_includes_what_it_does_not_link(self):
        self.expect(
            "src/unisono/net/socket_test.cpp:1: net_test includes unisono/store/store.h",
            {"net/socket_test.cpp": '#include "unisono/store/store.h"\n'},
        )

    def test_file_that_no_target_lists_is_held_to_its_folder(self):
        self.expect(
            "src/unisono/base/stray.h:1: base includes unisono/net/socket.h",
            {"base/stray.h": '#include "unisono/net/socket.h"\n'},
        )

    def test_private_header_of_another_floor(self):
        self.expect(
            "src/unisono/store/store.cpp:1: unisono/net/loop.h is private",
            {"store/store.cpp": '#include "unisono/net/loop.h"\n'},
        )

    def test_internal_header_is_for_the_floors_above_but_for_no_public_header(self):
        net = {
            "net/CMakeLists.txt": TREE["net/CMakeLists.txt"].replace("PRIVATE_", "INTERNAL_"),
        }
        include = '#include "unisono/net/loop.h"\n'
        self.assertEqual(self.problems({**net, "store/store.cpp": include}), [])
        self.expect(
            "src/unisono/net/socket.h:1: a public header must not include unisono/net/loop.h",
            {**net, "net/socket.h": include},
        )

    def test_header_of_headers_has_public_ones_of_all_floors(self):
        self.assertEqual(self.problems({"net.h": '#include "unisono/net/socket.h"\n'}), [])
        self.expect(
            "src/unisono/net.h:1: a public header must not include unisono/net/loop.h",
            {"net.h": '#include "unisono/net/loop.h"\n'},
        )

    def test_headers_of_a_folder_without_library_are_for_it_and_the_folders_above(self):
        parts = {
            "store/parts/CMakeLists.txt": "unisono_test(parts_test SOURCES part_test.cpp)\n",
            "store/parts/part.h": "",
        }
        include = '#include "unisono/store/parts/part.h"\n'
        self.assertEqual(self.problems({**parts, "store/store.cpp": include}), [])
        self.expect(
            "src/unisono/net/socket.cpp:1: net includes unisono/store/parts/part.h",
            {**parts, "net/socket.cpp": include},
        )

    def test_missing_header(self):
        self.expect(
            "src/unisono/base/error.h:1: there is no unisono/base/errr.h",
            {"base/error.h": '#include "unisono/base/errr.h"\n'},
        )

    def test_library_that_links_upward(self):
        self.expect(
            "src/unisono/base/CMakeLists.txt:1: base links unisono::net, which stands above it",
            {
                "base/CMakeLists.txt": "unisono_library(base HEADERS error.h SOURCES error.cpp\n"
                "  PRIVATE_LINKS unisono::net)\n",
                "net/CMakeLists.txt": "unisono_library(net HEADERS socket.h loop.h SOURCES "
                "socket.cpp)\n",
                "net/socket.h": "",
                "net/socket_test.cpp": "",
            },
        )

    def test_upward_link_by_target_link_libraries(self):
        self.expect(
            "links unisono::store, which stands above it",
            {
                "net/CMakeLists.txt": TREE["net/CMakeLists.txt"]
                + "target_link_libraries(unisono_net PRIVATE unisono::store)\n",
                "store/CMakeLists.txt": "unisono_library(store HEADERS store.h)\n",
                "store/store.h": "",
                "store/store.cpp": "",
                "torch/tensor.h": "",
            },
        )

    def test_cycle_within_a_floor(self):
        self.expect(
            "libraries link in a cycle: net -> tcp -> net",
            {
                "net/CMakeLists.txt": TREE["net/CMakeLists.txt"].replace(
                    "LINKS unisono::base\n", "LINKS unisono::base unisono::tcp\n"
                )
                + "unisono_library(tcp LINKS unisono::net)\n",
            },
        )

    def test_link_to_a_library_that_does_not_exist(self):
        self.expect(
            "src/unisono/base/CMakeLists.txt:1: base links unisono::bass, which no floor defines",
            {
                "base/CMakeLists.txt": "unisono_library(base HEADERS error.h SOURCES error.cpp "
                "LINKS unisono::bass)\n"
            },
        )

    def test_floor_that_the_list_of_floors_lacks(self):
        self.expect(
            "src/unisono/extra/CMakeLists.txt:1: extra/ is not in src/unisono/CMakeLists.txt",
            {"extra/CMakeLists.txt": "unisono_library(extra HEADERS)\n"},
        )

    def test_torch_outside_torch(self):
        for header in ("torch/torch.h", "ATen/ATen.h", "c10/util/Half.h", "pybind11/pybind11.h"):
            self.expect(
                f"src/unisono/base/error.cpp:1: only torch/ and python/ may include {header}",
                {"base/error.cpp": f"#include <{header}>\n"},
            )

    def test_datasets_stand_above_all_floors(self):
        self.expect(
            "src/unisono/torch/CMakeLists.txt:1: torch links unisono::datasets, which stands above",
            {
                "torch/CMakeLists.txt": TREE["torch/CMakeLists.txt"].replace(
                    "unisono::store", "unisono::store unisono::datasets"
                ),
                "torch/tensor.cpp": '#include "unisono/datasets/csv.h"\n',
            },
        )
        self.expect(
            "src/unisono/torch/tensor.cpp:1: torch includes unisono/datasets/csv.h of "
            "unisono::datasets, which is not in its LINKS",
            {"torch/tensor.cpp": '#include "unisono/datasets/csv.h"\n'},
        )

    def test_includes_of_datasets(self):
        self.expect(
            "datasets/unisono/datasets/csv.cpp:1: datasets includes unisono/net/socket.h of "
            "unisono::net, which is not in its LINKS",
            {"datasets/unisono/datasets/csv.cpp": '#include "unisono/net/socket.h"\n'},
        )
        self.expect(
            "datasets/unisono/datasets/csv.cpp:1: there is no unisono/datasets/cvs.h",
            {"datasets/unisono/datasets/csv.cpp": '#include "unisono/datasets/cvs.h"\n'},
        )
        self.expect(
            "datasets/unisono/datasets/csv.cpp:1: only torch/ and python/ may include ATen/ATen.h",
            {"datasets/unisono/datasets/csv.cpp": "#include <ATen/ATen.h>\n"},
        )

    def test_third_party_library_in_a_public_header(self):
        for header in (
            "fmt/core.h",
            "spdlog/spdlog.h",
            "nlohmann/json.hpp",
            "toml++/toml.h",
            "CLI/CLI.hpp",
            "openssl/evp.h",
            "hwy/highway.h",
        ):
            self.expect(
                f"src/unisono/base/error.h:1: a public header must not include {header}",
                {"base/error.h": f"#include <{header}>\n"},
            )


if __name__ == "__main__":
    unittest.main()
