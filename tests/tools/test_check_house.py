"""Plants one violation of each sort in a small tree, and expects check_house to name it."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import check_house

LONG = "int x;\n" * check_house.MIN_LINES
PLAIN = "// Returns the number of ranks in the group.\n" * 30


def classes(*names: str) -> str:
    return "".join(f"class {name} {{\n  int x;\n}};\n" for name in names) + LONG


TREE = {
    "src/unisono/base/error.h": classes("Error"),
    "src/unisono/base/error.cpp": PLAIN + LONG,
    "src/unisono/comm/group.h": classes("Group"),
    "src/unisono/comm/group.cpp": '#include "unisono/comm/group.h"\nvoid Group::join() {}\n' + LONG,
    "src/unisono/comm/README.md": "The class is in `comm/group.h`.\n",
    "src/unisono/engine/native/ring.h": classes("Ring"),
    "examples/01_hello/main.cpp": "int main() {}\n",
}


class CheckHouseTest(unittest.TestCase):
    def problems(self, changes, allowed=frozenset()):
        tree = TREE | changes
        with tempfile.TemporaryDirectory() as folder:
            for name, text in tree.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check_house.House(Path(folder), list(tree), set(allowed)).check()

    def expect(self, expected, changes):
        problems = self.problems(changes)
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(expected, problems[0])

    def test_accepts_a_tree_in_order(self):
        self.assertEqual(self.problems({}), [])

    def test_folder_with_too_many_files(self):
        files = {f"src/unisono/net/part{i}.cpp": LONG for i in range(check_house.MAX_FILES)}
        self.assertEqual(self.problems(files), [])
        self.expect("src/unisono/net: 41 files", files | {"src/unisono/net/one_more.cpp": LONG})
        self.assertEqual(self.problems(files | {"src/unisono/net/x_test.cpp": LONG}), [])

    def test_too_many_short_files(self):
        files = {f"src/unisono/net/{i % 2}/part{i}.cpp": "int x;\n" for i in range(41)}
        self.expect("41 files have under 40 lines", files)

    def test_short_header_with_one_user(self):
        header = {"src/unisono/comm/limits.h": "constexpr int kMost = 3;\n"}
        user = {"src/unisono/comm/group.cpp": '#include "unisono/comm/limits.h"\n' + LONG}
        self.expect("comm/limits.h: has one user", header | user)
        other = {"src/unisono/comm/work.cpp": '#include "unisono/comm/limits.h"\n' + LONG}
        self.assertEqual(self.problems(header | user | other), [])

    def test_type_name_of_two_headers(self):
        self.expect("Group: is a type in", {"src/unisono/engine/group.h": classes("Group")})

    def test_class_in_three_sources(self):
        parts = {f"src/unisono/comm/group_{i}.cpp": "int Group::f() {}\n" + LONG for i in range(2)}
        self.expect("Group: has members in 3 files", parts)
        calls = {
            f"src/unisono/comm/group_{i}.cpp": "  return Group::f();\n" + LONG for i in range(2)
        }
        self.assertEqual(self.problems(calls), [])

    def test_path_that_does_not_exist(self):
        self.expect("names `comm/gone.h`", {"src/unisono/comm/README.md": "See `comm/gone.h`.\n"})

    def test_part_of_the_engine_outside_of_it(self):
        include = '#include "unisono/engine/native/ring.h"\n' + LONG
        self.expect("includes unisono/engine/native/ring.h", {"src/unisono/comm/work.cpp": include})

    def test_floor_above_in_a_comment(self):
        comment = "// Called by comm::Group.\n" + PLAIN + LONG
        self.expect("base/error.cpp:1: names comm::G", {"src/unisono/base/error.cpp": comment})
        self.assertEqual(self.problems({"src/unisono/comm/work.cpp": comment}), [])

    def test_long_example(self):
        lines = {"examples/01_hello/main.cpp": "int x;\n" * 121}
        self.expect("examples/01_hello/main.cpp: 121 lines", lines)

    def test_language(self):
        for kind, comment in (
            ("pronouns", "// Removes it from them and their list.\n"),
            ("what", "// Returns what has arrived.\n"),
            ("who", "// Wakes the thread who waits.\n"),
            ("absence", "// Returns nothing.\n"),
            ("people", "// A rank says that a peer has failed.\n"),
        ):
            with self.subTest(kind):
                self.expect(f" {kind} per 1,000", {"src/unisono/base/error.cpp": comment + LONG})
        fragment = "// Of the loop's thread.\n" + LONG
        self.expect("begin as fragments", {"src/unisono/base/error.cpp": fragment})

    def test_language_of_documents(self):
        self.expect(
            "documents: ", {"docs/guide/x.md": "They pass it to them, and one keeps its own.\n"}
        )
        self.assertEqual(
            self.problems({"docs/guide/x.md": "The group passes the list to all.\n"}), []
        )

    def test_allowed_exception_and_one_that_is_not_needed(self):
        twice = {"src/unisono/engine/group.h": classes("Group")}
        self.assertEqual(self.problems(twice, {("type", "Group")}), [])
        unused = self.problems({}, {("type", "Group")})
        self.assertEqual(len(unused), 1, unused)
        self.assertIn("is not needed", unused[0])


if __name__ == "__main__":
    unittest.main()
