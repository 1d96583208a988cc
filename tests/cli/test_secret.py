"""`unisono secret`, and the errors that name it: python test_secret.py UNISONO"""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

UNISONO = sys.argv.pop(1)
TIMEOUT = 60
# A name that no name server resolves, so that no service can exist there.
NOWHERE = "no-such-host.invalid"


def unisono(*words, home, **variables):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("UNISONO_", "PET_"))}
    clean.pop("HOME", None)
    home = {} if home is None else {"HOME": str(home)}
    return subprocess.run(
        [UNISONO, *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        env={**clean, **home, **variables},
    )


class Secret(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)
        self.file = self.home / ".unisono" / "secret"

    def test_is_written_where_ranks_look_and_for_the_user_alone(self):
        done = unisono("secret", home=self.home)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(f"wrote {self.file}", done.stdout)
        self.assertRegex(self.file.read_text(), r"^[0-9a-f]{64}\n$")
        self.assertEqual(self.file.stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.file.parent.stat().st_mode & 0o777, 0o700)
        self.assertNotIn(self.file.read_text().strip(), done.stdout)

    def test_one_that_is_there_stays(self):
        unisono("secret", home=self.home)
        before = self.file.read_text()
        done = unisono("secret", home=self.home)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn(f'"{self.file}" exists', done.stderr)
        self.assertEqual(self.file.read_text(), before)

    def test_another_file_may_be_named(self):
        path = str(self.home / "job")
        done = unisono("secret", path, home=None)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("UNISONO_SECRET_FILE", done.stdout)
        self.assertEqual(len(Path(path).read_text()), 65)
        self.assertFalse(self.file.exists())

    def test_without_a_home_the_other_way_is_named(self):
        done = unisono("secret", home=None)
        self.assertEqual(done.returncode, 2)
        self.assertIn("unisono secret FILE", done.stderr)

    def test_where_it_cannot_be_written_is_named(self):
        done = unisono("secret", str(self.home / "no" / "folder"), home=self.home)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no/folder", done.stderr)

    def test_the_command_line_of_two_machines_runs_after_the_one_command(self):
        node = ("run", "--nnodes", "2", "--rdzv-endpoint", f"{NOWHERE}:29500", "--rdzv-conf")
        node = (*node, "join_timeout=1", "true")
        refused = unisono(*node, home=self.home)
        self.assertEqual(refused.returncode, 2)
        self.assertIn('type "unisono secret"', refused.stderr)
        self.assertNotIn("unisono run", refused.stderr)
        self.assertEqual(unisono("secret", home=self.home).returncode, 0)
        joining = unisono(*node, home=self.home)
        self.assertNotIn("secret", joining.stderr)
        self.assertIn(f"no launcher of node 0 at {NOWHERE}:29500", joining.stderr)

    def test_doctor_names_the_command(self):
        place = {"MASTER_ADDR": "10.9.9.9", "RANK": "0", "WORLD_SIZE": "2"}
        done = unisono("doctor", home=self.home, **place)
        words = " ".join(done.stdout.split())
        self.assertIn("the job has no secret", words)
        self.assertIn("-> type, on one node: unisono secret", words)
        unisono("secret", home=self.home)
        self.file.chmod(0o644)
        words = " ".join(unisono("doctor", home=self.home, **place).stdout.split())
        self.assertIn("has mode 0644", words)
        self.assertIn("-> fix the file, or delete it and type", words)


if __name__ == "__main__":
    unittest.main()
