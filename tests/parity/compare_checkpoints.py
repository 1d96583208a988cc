"""Files of Python's safetensors and PyTorch's checkpoints against ours, both ways, and the program
`unisono checkpoint`: python test_python_files.py PATH_OF_UNISONO PATH_OF_SAVE_SHARDED"""

import json
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp

try:
    from safetensors.torch import load_file, safe_open, save_file
    from torch.distributed.checkpoint.hf_storage import (
        HuggingFaceStorageReader,
        HuggingFaceStorageWriter,
    )
except ImportError as error:
    print(f"skipped: {error}; `make test-deps` installs the package safetensors")
    sys.exit(77)

SAVE_SHARDED = sys.argv.pop(2)
PROGRAM = sys.argv.pop(1)
DTYPES = [
    torch.bool,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.uint16,
    torch.int32,
    torch.uint32,
    torch.int64,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
]
# Types of the format by the number of bits per element.
WIDTHS = {
    4: "F4",
    6: "F6_E2M3 F6_E3M2",
    8: "BOOL U8 I8 F8_E4M3 F8_E5M2 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ",
    16: "I16 U16 F16 BF16",
    32: "I32 U32 F32",
    64: "C64 F64 I64 U64",
}
WEIGHT = torch.arange(35, dtype=torch.float32).reshape(7, 5)


def unisono(*words):
    return subprocess.run(
        [PROGRAM, "checkpoint", *map(str, words)], capture_output=True, text=True, timeout=60
    )


def every_dtype():
    torch.manual_seed(1)
    tensors = {
        str(dtype).removeprefix("torch."): torch.randint(0, 2, (3, 2)).to(dtype) for dtype in DTYPES
    }
    tensors["ä.number"] = torch.tensor(2.5, dtype=torch.float64)
    tensors["empty"] = torch.empty(0, 4)
    return tensors


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_ok(self, *words):
        done = unisono(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def assert_same(self, ours, theirs):
        self.assertEqual(set(ours), set(theirs))
        for name, tensor in theirs.items():
            self.assertEqual(ours[name].dtype, tensor.dtype, name)
            self.assertEqual(ours[name].shape, tensor.shape, name)
            self.assertTrue(torch.equal(ours[name], tensor), name)

    def save_sharded(self, step=100, world_size=3):
        root = self.folder / "checkpoints"
        subprocess.run([SAVE_SHARDED, root, str(step), str(world_size)], check=True, timeout=60)
        return root

    def test_python_reads_what_we_write_of_what_python_wrote(self):
        theirs, ours = self.folder / "theirs.safetensors", self.folder / "ours.safetensors"
        save_file(every_dtype(), theirs, metadata={"format": "pt"})
        self.run_ok("export", theirs, ours)
        self.assert_same(load_file(ours), every_dtype())
        with safe_open(ours, "pt") as file:
            self.assertEqual(file.metadata(), {"format": "pt"})
        self.assertIn("equal, bit for bit: 21 tensors", self.run_ok("diff", theirs, ours))

    def test_every_type_of_the_format_is_a_name_and_a_width(self):
        header, data = {}, b""
        for width, names in WIDTHS.items():
            for name in names.split():
                places = [len(data), len(data) + width]
                header[name] = {"dtype": name, "shape": [2, 4], "data_offsets": places}
                data += bytes((len(data) + i) % 251 for i in range(width))
        text = json.dumps(header).encode()
        path, other = self.folder / "all.safetensors", self.folder / "other.safetensors"
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)
        listed = self.run_ok("ls", path)
        for name in header:
            self.assertIn(f"  {name} {name.lower()}[2, 4]\n", listed)
        self.assertIn("22 tensors", self.run_ok("verify", path))
        self.run_ok("export", path, other)
        self.assertIn("equal, bit for bit: 22 tensors", self.run_ok("diff", path, other))
        with safe_open(other, "pt") as file:
            self.assertEqual(set(file.keys()), set(header))
        # Changes bits of two elements of F4, two elements of F6 and one element of F8.
        changed = bytearray(data)
        for name, byte, bits in [("F4", 1, 0x11), ("F6_E2M3", 0, 0x81), ("F8_E8M0", 0, 0x81)]:
            changed[header[name]["data_offsets"][0] + byte] ^= bits
        other.write_bytes(struct.pack("<Q", len(text)) + text + changed)
        done = unisono("diff", path, other)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(
            done.stdout,
            "F4: 2 of 8 elements differ\n"
            "F6_E2M3: 2 of 8 elements differ\n"
            "F8_E8M0: 1 of 8 elements differ\n",
        )

    def test_pytorch_loads_our_checkpoint(self):
        checkpoint = self.save_sharded() / "step-00000100"
        state = {"weight": torch.zeros(7, 5), "step": torch.tensor(0)}
        dcp.load(state, storage_reader=HuggingFaceStorageReader(str(checkpoint)), no_dist=True)
        self.assert_same(state, {"weight": WEIGHT, "step": torch.tensor(4711)})

    def test_our_metadata_are_those_of_pytorchs_writer(self):
        theirs = self.folder / "theirs"
        dcp.save(
            {"weight": WEIGHT},
            storage_writer=HuggingFaceStorageWriter(str(theirs), save_distributed=True),
            no_dist=True,
        )
        ours = self.save_sharded(world_size=1) / "step-00000100"
        (name,) = [path.name for path in theirs.glob("*.safetensors")]
        metadata = []
        for folder in (theirs, ours):
            with safe_open(folder / name, "pt") as file:
                metadata.append(file.metadata())
        self.assertEqual(set(metadata[0]), set(metadata[1]))
        for key in ("DCP_VERSION", "format"):
            self.assertEqual(metadata[0][key], metadata[1][key])
        sharding = [json.loads(each["DCP_SHARDING_INFO"])["weight"] for each in metadata]
        self.assertEqual(sharding[0]["saved_offsets"], sharding[1]["saved_offsets"])

    def test_we_load_pytorchs_checkpoint(self):
        theirs = self.folder / "theirs"
        for saves_distributed in (True, False):
            dcp.save(
                every_dtype(),
                storage_writer=HuggingFaceStorageWriter(
                    str(theirs / str(saves_distributed)), save_distributed=saves_distributed
                ),
                no_dist=True,
            )
            ours = self.folder / "ours.safetensors"
            self.run_ok("export", theirs / str(saves_distributed), ours)
            self.assert_same(load_file(ours), every_dtype())

    def test_export_joins_what_ranks_have_saved(self):
        root = self.save_sharded()
        self.run_ok("export", root, self.folder / "whole.safetensors")
        self.assert_same(
            load_file(self.folder / "whole.safetensors"),
            {"weight": WEIGHT, "step": torch.tensor(4711)},
        )
        self.run_ok("export", root, self.folder / "part.safetensors", "--prefix", "wei")
        self.assert_same(load_file(self.folder / "part.safetensors"), {"ght": WEIGHT})
        done = unisono("export", root, self.folder / "x", "--prefix", "nothing.")
        self.assertEqual(done.returncode, 2)
        self.assertIn('no tensor\'s name begins with "nothing."', done.stderr)

    def test_ls(self):
        root = self.save_sharded(100)
        self.save_sharded(200, world_size=1)
        self.assertEqual(
            self.run_ok("ls", root),
            "step-00000100: step 100, 2 tensors, 148 bytes, 3 files\n"
            "step-00000200: step 200, 2 tensors, 148 bytes, 1 file (latest)\n",
        )
        self.assertEqual(
            self.run_ok("ls", root / "step-00000100"),
            "step 100, 2 tensors, 148 bytes, 3 files\n"
            "  step i64[]\n"
            "  weight f32[7, 5] in 3 parts\n",
        )

    def test_verify_names_the_damaged_file(self):
        root = self.save_sharded(100)
        self.save_sharded(200)
        self.assertEqual(self.run_ok("verify", root).count("all check sums are right"), 2)
        (shard,) = (root / "step-00000100").glob("shard-00002-*")
        content = bytearray(shard.read_bytes())
        content[-1] ^= 1
        shard.write_bytes(content)
        done = unisono("verify", root)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{shard}: the check sum of its bytes 0 to {len(content)}", done.stderr)
        self.assertIn("step-00000200: step 200", done.stdout)
        self.run_ok("verify", root / "step-00000200")

    def test_what_a_folder_of_checkpoints_lacks_fails_verify_and_ls(self):
        root = self.save_sharded(100)
        self.save_sharded(200)
        latest, newest = root / "latest", root / "step-00000200"
        for text, reason in [
            ("step-00000300\n", "latest names step-00000300, which does not exist"),
            ("", "latest is empty"),
            ("x", 'latest names "x", which is not a checkpoint'),
        ]:
            latest.write_text(text)
            done = unisono("verify", root)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stdout.count("all check sums are right"), 2)
            self.assertIn(f"{root}: {reason}", done.stderr)
            done = unisono("ls", root)
            self.assertIn("step-00000200: step 200", done.stdout)
            self.assertIn(reason, done.stderr)
        latest.write_bytes(b"\xef\xbb\xbfstep-00000200\r\n")
        self.run_ok("verify", root)
        (newest / "manifest.json").unlink()
        for command in ("verify", "ls"):
            done = unisono(command, root)
            self.assertEqual(done.returncode, 1)
            self.assertIn("step-00000100", done.stdout)
            self.assertIn(f"{newest}: has no manifest.json", done.stderr)
        self.assertIn(
            "step-00000100: step 100, 2 tensors, 148 bytes, 3 files (latest)", done.stdout
        )
        for file in newest.iterdir():
            file.unlink()
        self.assertEqual(unisono("verify", root).returncode, 1)

    def test_verify_fails_unless_the_folder_has_all_of_the_model(self):
        for saves_distributed in (True, False):
            folder = self.folder / str(saves_distributed)
            dcp.save(
                every_dtype(),
                storage_writer=HuggingFaceStorageWriter(
                    str(folder),
                    save_distributed=saves_distributed,
                    fqn_to_index_mapping={name: 1 + i % 3 for i, name in enumerate(every_dtype())},
                ),
                no_dist=True,
            )
            index = folder / "model.safetensors.index.json"
            self.assertEqual(index.exists(), not saves_distributed)
            files = sorted(folder.glob("*.safetensors"))
            self.assertEqual(len(files), 3)
            self.assertIn("21 tensors", self.run_ok("verify", folder))
            for file in files:
                content = file.read_bytes()
                file.unlink()
                done = unisono("verify", folder)
                self.assertEqual(done.returncode, 1)
                self.assertIn(file.name, done.stderr)
                file.write_bytes(content)
            if not saves_distributed:
                tensors = load_file(files[0])
                name, _ = tensors.popitem()
                save_file(tensors, files[0])
                done = unisono("verify", folder)
                self.assertEqual(done.returncode, 1)
                self.assertIn(f'{files[0]}: has no tensor "{name}"', done.stderr)

    def test_diff_says_what_differs(self):
        left, right = self.folder / "left.safetensors", self.folder / "right.safetensors"
        save_file({"a": torch.zeros(4), "b": torch.zeros(4), "c": torch.zeros(1)}, left)
        save_file({"a": torch.tensor([0.0, 1, 0, 1]), "b": torch.zeros(2, 2)}, right)
        done = unisono("diff", left, right)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(
            done.stdout,
            f"a: 2 of 4 elements differ\nb: f32[4] and f32[2, 2]\nc: only in {left}\n",
        )
        done = unisono("diff", left, self.folder / "nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("nowhere", done.stderr)

    def test_what_is_no_checkpoint_is_named(self):
        done = unisono("ls", self.folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{self.folder}: is not a checkpoint", done.stderr)
        self.assertEqual(unisono("ls").returncode, 2)


if __name__ == "__main__":
    unittest.main()
