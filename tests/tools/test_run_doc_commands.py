"""Runs small pages through run_doc_commands."""

import contextlib
import io
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import run_doc_commands as docs


def run(text, slow=False):
    """Returns what is printed about a page of this text."""
    output = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.md"
        page.write_text(text)
        with contextlib.redirect_stdout(output):
            docs.run_page(page, docs.ROOT / "build/else", slow)
    return output.getvalue()


class RunDocCommandsTest(unittest.TestCase):
    def fails(self, expected, text, slow=False):
        with self.assertRaises(docs.DocError) as caught:
            run(text, slow)
        self.assertIn(expected, str(caught.exception))

    def test_runs_in_the_root_and_stops_at_the_first_failure(self):
        self.assertIn("ran", run("```sh\ntest -e tools/run_doc_commands.py\n```\n"))
        self.fails("page.md:1: exit status 3", "```sh\n(exit 3)\ntrue\n```\n")

    def test_compares_the_output_of_a_console_block(self):
        self.assertIn("ran", run("```console\n$ echo one; echo two\none\n$ echo 3 4\n3 ...\n```\n"))
        self.assertIn("ran", run("```console\n$ printf '%s' \\\na\na\n```\n"))
        self.fails("should print\ntwo\nbut printed\none", "```console\n$ echo one\ntwo\n```\n")

    def test_blocks_share_files_of_their_home(self):
        text = (
            "<!-- doc-test: file ~/hello/x.txt -->\n```cpp\nhi\n```\n\n"
            "```console\n$ cat ~/hello/x.txt\nhi\n```\n"
        )
        self.assertEqual(run(text).count("\n"), 2)

    def test_build_release_stands_for_the_build_under_test(self):
        self.assertIn("ran", run("```console\n$ echo build/release/bin\nbuild/else/bin\n```\n"))

    def test_slow_blocks_run_only_when_asked_for(self):
        text = "<!-- doc-test: slow -->\n```sh\nfalse\n```\n"
        self.assertIn("skipped: slow", run(text))
        self.fails("exit status 1", text, slow=True)

    def test_skips_with_a_reason_only(self):
        self.assertIn(
            "skipped: needs root", run("<!-- doc-test: skip: needs root -->\n```sh\nfalse\n```\n")
        )
        self.fails("wants a reason", "<!-- doc-test: skip -->\n```sh\nfalse\n```\n")

    def test_a_mark_holds_for_the_next_block_alone(self):
        text = "<!-- doc-test: slow -->\nwords\n```sh\nfalse\n```\n"
        self.fails("exit status 1", text)

    def test_rejects_what_nobody_would_test(self):
        self.fails("page.md:1: a block of c++ is tested by no one", "```c++\nint x;\n```\n")
        self.fails("page.md:1: a block of bash", "```bash\ntrue\n```\n")
        self.fails("not understood", "<!-- doc-test: later -->\n")
        self.fails("has no end", "```sh\ntrue\n")

    def test_leaves_snippets_of_cpp_to_the_other_script_and_skips_none(self):
        self.assertIn("compile_doc_snippets.py", run("```cpp\nint x;\n```\n"))
        self.fails(
            "page.md:2: C++ is compiled and not skipped",
            "<!-- doc-test: skip: a part of a program -->\n```cpp\nint x;\n```\n",
        )

    def test_rejects_cpp_in_an_indented_block(self):
        for line in ("#include <array>", "wait(5);", "wait(5);  // seconds", "for (;;) {"):
            self.fails("page.md:3: C++ that is tested by no one", f"So:\n\n    {line}\n")
        self.assertEqual(run("    $ unisono run -n 4 ./train\n    rank 0 waits for rank 1;\n"), "")

    def test_leaves_blocks_without_a_language_alone(self):
        self.assertEqual(run("```\nfalse\n```\n"), "")


if __name__ == "__main__":
    unittest.main()
