"""Makes source files of small pages, and checks the names in them."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import compile_doc_snippets as snippets
from run_doc_commands import is_snippet, parse


def compile_page(text):
    """Returns what the compiler says of the snippets of a page."""
    blocks = [block for block in parse(text, "docs/guide/page.md") if is_snippet(block)]
    # The declarations for real pages need an installed package.
    source = snippets.source_of(blocks, "core").split("\n", 1)[1]
    done = subprocess.run(
        ["c++", "-std=c++20", "-fsyntax-only", "-Wno-return-type", "-x", "c++", "-"],
        env=os.environ | {"LC_ALL": "C"},
        input=source,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr


class CompileDocSnippetsTest(unittest.TestCase):
    def test_snippets_are_bodies_of_functions_or_files_and_may_repeat_names(self):
        text = (
            "```cpp\n#include <array>\n\nstd::array<int, 2> x{};\n...\n```\n"
            "```cpp\nint x = 1;\n```\n"
            "```cpp\nvoid train() {}\nint main() { train(); }\n```\n"
        )
        self.assertEqual(compile_page(text), "")

    def test_an_error_has_the_place_in_the_page(self):
        said = compile_page("Text.\n\n```cpp\n#include <array>\n\nint x = nobody;\n```\n")
        self.assertIn("docs/guide/page.md:6:9: error: 'nobody' was not declared", said)

    def test_a_program_that_is_written_to_a_file_is_no_snippet(self):
        text = "<!-- doc-test: file ~/x.cpp -->\n```cpp\nnobody();\n```\n"
        self.assertEqual(compile_page(text), "")

    def test_headers_and_functions_in_the_text_must_be_installed(self):
        with tempfile.TemporaryDirectory() as folder:
            include = Path(folder)
            (include / "unisono/base").mkdir(parents=True)
            (include / "unisono/base/gpus.h").write_text("int find_gpus();\n")

            def check(text, page="launch.md"):
                return snippets.check_names(text, page, "f(own_function());", include)

            good = (
                "`gpus.h`, `base/gpus.h`, `unisono::find_gpus(x)`, `own_function()`, `unisono.f()`"
            )
            self.assertEqual(check(good), [])
            self.assertEqual(
                check("`unisono/gpus.h` has\n`base::lost_gpus()`"),
                [
                    "launch.md:1: no header unisono/gpus.h is installed",
                    "launch.md:2: no installed header has lost_gpus()",
                ],
            )
            self.assertEqual(check("`MPI_Init()`", "coming-from.md"), [])
            self.assertEqual(check("`src/unisono/unisono.h`"), [], "a path in the repository")
            self.assertEqual(check("```\n`lost()`\n```\n    `lost()`\n"), [])


if __name__ == "__main__":
    unittest.main()
