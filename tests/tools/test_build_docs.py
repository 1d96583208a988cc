"""Plants one fault of each sort in a small tree, and expects build_docs to name it."""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

HEADER = """#pragma once

namespace unisono {

/// How a group is made. `quiet` has no line of its own.
struct GroupOptions {
  /// Most ranks of a group.
  int limit = 8;
  bool quiet = false;
};

/// Ranks that communicate; docs/guide/start.md makes one.
class Group {
 public:
  /// A group of this rank alone.
  explicit Group(const GroupOptions& options);
  Group(const Group&) = delete;
  ~Group();

  /// Adds up the ranks' values.
  void sum(float* values, int count);
  void sum(double* values, int count);
  int sum_async(float* values, int count);

  int rank() const;
  void clear();

  /// A fault of the network.
  enum class Fault { kLost, kSlow };

 private:
  int hidden_ = 0;
};

bool operator==(const Group& left, const Group& right);

}  // namespace unisono
"""
TREE = {
    "README.md": "# Top\n\n[Guide](docs/guide/README.md), [license](LICENSE)\n\n"
    "`src/unisono/comm/group.h`, `comm/group.h`, `group.h`, `torch/torch.h`\n",
    "LICENSE": "Text\n",
    "docs/guide/README.md": "# Guide\n\nFirst steps:\n\n- [Start](start.md): begin\n",
    "docs/guide/start.md": "# Start\n\n## Set it up\n\n`Group` in [set up](#set-it-up).\n\n"
    "```sh\nls src/unisono/none.h\n```\n",
    "src/unisono/unisono.h": '#pragma once\n\n/// The door.\n\n#include "unisono/comm/group.h"\n',
    "src/unisono/comm/group.h": HEADER,
    "src/unisono/comm/other.h": "#pragma once\nvoid private_header();\n",
}


def find_python():
    """A Python that has MkDocs: that of the test, or that of `make docs`."""
    for python in (sys.executable, ROOT / ".venv/bin/python3"):
        command = [str(python), "-c", "import material, mkdocs"]
        if Path(python).exists() and not subprocess.run(command, capture_output=True).returncode:
            return str(python)
    return None


TREE_HEADER = "src/unisono/comm/group.h"
DOUBLE = "  void sum(double* values, int count);\n"
ASYNC = "  int sum_async(float* values, int count);\n"
PYTHON = find_python()


@unittest.skipUnless(PYTHON, "mkdocs-material is not installed")
@unittest.skipUnless(shutil.which("doxygen"), "doxygen is not installed")
class BuildDocsTest(unittest.TestCase):
    def build(self, changes, read=()):
        """Builds the site of the tree with some files replaced; returns findings and pages."""
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            shutil.copytree(ROOT / "docs/site", root / "docs/site")
            for name, text in (TREE | changes).items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
            done = subprocess.run(
                [PYTHON, ROOT / "tools/build_docs.py", "--root", root],
                capture_output=True,
                text=True,
                check=False,
            )
            findings = done.stderr.splitlines()
            self.assertEqual(done.returncode, 1 if findings else 0, done.stderr)
            return findings, [(root / "build/docs" / name).read_text() for name in read]

    def expect(self, expected, changes):
        findings, _ = self.build(changes)
        self.assertEqual(len(findings), 1, findings)
        self.assertIn(expected, findings[0])

    def test_a_correct_tree_becomes_a_site_with_search(self):
        wanted = ["api/comm/group.html", "docs/guide/start.html", "search/search_index.js"]
        findings, (reference, guide, index) = self.build({}, wanted)
        self.assertEqual(findings, [])
        self.assertIn("Adds up the ranks' values.", reference)
        self.assertIn('href="../../docs/guide/start.html"', reference)
        self.assertNotIn("hidden_", reference)
        self.assertIn('href="../../api/comm/group.html#Group"><code>Group</code>', guide)
        self.assertIn("Most ranks of a group", index)
        self.assertIn("Set it up", index)

    def test_class_without_comment(self):
        self.expect(
            "src/unisono/comm/group.h:13: class Group has no comment",
            {TREE_HEADER: HEADER.replace("/// Ranks that communicate", "// Ranks")},
        )

    def test_member_function_without_comment(self):
        self.expect(
            "src/unisono/comm/group.h:21: function Group::sum has no comment",
            {TREE_HEADER: HEADER.replace("/// Adds", "// Adds")},
        )

    def test_other_function_below_is_not_covered(self):
        self.expect(
            "function Group::add has no comment",
            {TREE_HEADER: HEADER.replace(DOUBLE, "  void add(int rank);\n").replace(ASYNC, "")},
        )

    def test_option_without_comment(self):
        self.expect(
            "variable GroupOptions::quiet has no comment",
            {TREE_HEADER: HEADER.replace(" `quiet` has no line of its own.", "")},
        )

    def test_enumeration_without_comment(self):
        self.expect(
            "enum Group::Fault has no comment",
            {TREE_HEADER: HEADER.replace("/// A fault", "// A fault")},
        )

    def test_constant_behind_an_empty_line_is_not_covered_by_the_comment_above(self):
        constants = "/// Most ranks.\nconstexpr int kMost = 8;\nconstexpr int kMore = 9;\n"
        text = HEADER.replace("/// Ranks that", f"{constants}/// Ranks that")
        self.assertEqual(self.build({TREE_HEADER: text})[0], [])
        self.expect(
            "variable kMore has no comment",
            {TREE_HEADER: text.replace("constexpr int kMore", "\nconstexpr int kMore")},
        )

    def test_link_to_a_page_that_does_not_exist(self):
        self.expect("README.md:3: link 'docs/none.md'", {"README.md": "# Top\n\n[x](docs/none.md)"})

    def test_link_to_a_file_that_does_not_exist(self):
        self.expect("README.md:3: link 'plot.svg'", {"README.md": "# Top\n\n![x](plot.svg)"})

    def test_link_to_an_anchor_of_another_page(self):
        self.expect(
            "README.md:3: link 'docs/guide/start.md#none'",
            {"README.md": "# Top\n\n[x](docs/guide/start.md#none)\n"},
        )

    def test_link_to_an_anchor_of_the_same_page(self):
        self.expect("README.md:3: link '#none'", {"README.md": "# Top\n\n[x](#none)\n"})

    def test_text_that_names_a_file_that_does_not_exist(self):
        self.expect("README.md:3: there is no file none.h", {"README.md": "# Top\n\nSee `none.h`."})
        self.expect(
            "README.md:3: there is no file src/unisono/none",
            {"README.md": "# Top\n\nThe folder src/unisono/none/ and src/unisono/comm/."},
        )

    def test_comment_that_names_a_file_that_does_not_exist(self):
        findings, _ = self.build({TREE_HEADER: HEADER.replace("start.md", "stop.md")})
        self.assertIn("group.h:12: there is no file docs/guide/stop.md", findings[0])


if __name__ == "__main__":
    unittest.main()
