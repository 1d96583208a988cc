"""`unisono store`: the commands that people use to serve a store and to look into one."""

import contextlib
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

UNISONO = sys.argv.pop(1)
TIMEOUT = 30


def run(*arguments, secret=None, **variables):
    return subprocess.run(
        [UNISONO, "store", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        env=environment(secret) | variables,
    )


def environment(secret):
    variables = {k: v for k, v in os.environ.items() if not k.startswith("UNISONO_SECRET")}
    return variables if secret is None else {**variables, "UNISONO_SECRET": secret}


class Server:
    """unisono store serve, for the length of a with block."""

    def __init__(self, *arguments, secret=None, stderr=None):
        self.process = subprocess.Popen(
            [UNISONO, "store", "serve", "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            env=environment(secret),
        )
        line = self.process.stdout.readline()
        assert line.startswith("listening on "), line
        self.address = line.removeprefix("listening on ").rstrip("\n")
        self.port = int(self.address.rpartition(":")[2])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        code = self.process.wait(TIMEOUT)
        self.process.stdout.close()
        if self.process.stderr:
            self.process.stderr.close()
        return code

    def run(self, command, *arguments, secret=None):
        return run(command, "--port", str(self.port), *arguments, secret=secret)


class Store(unittest.TestCase):
    def expect(self, result, out):
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, out, ""))

    def test_values_are_set_and_found(self):
        with Server() as server:
            self.assertEqual(server.address, f"127.0.0.1:{server.port}")
            self.expect(server.run("set", "a/key", "some value"), "")
            self.expect(server.run("set", "a/other", "line\n\x01"), "")
            self.expect(server.run("set", "b", ""), "")
            self.expect(server.run("get", "a/key"), "some value\n")
            self.expect(server.run("set", "c\nd", ""), "")
            self.expect(server.run("list"), "a/key\na/other\nb\nc\\x0ad\n")
            self.expect(
                server.run("list", "a/", "--values"),
                'a/key = "some value"\na/other = "line\\x0a\\x01"\n',
            )

    def test_get_waits_for_its_key_and_then_names_it(self):
        with Server() as server:
            setter = threading.Timer(0.2, server.run, ("set", "late", "1"))
            setter.start()
            self.expect(server.run("get", "late"), "1\n")
            setter.join()
            missing = server.run("get", "never", "--timeout", "0.1")
            self.assertEqual(missing.returncode, 1)
            self.assertIn('no "never" within 0.1 s', missing.stderr)

    def test_watch_prints_each_change(self):
        with Server() as server:
            self.expect(server.run("set", "k", "old"), "")
            watch = subprocess.Popen(
                [UNISONO, "store", "watch", "k", "--port", str(server.port), "--count", "2"],
                stdout=subprocess.PIPE,
                text=True,
                env=environment(None),
            )
            # The watch does not report its start, so the first of these changes that it prints is
            # unknown.
            value = 0
            deadline = time.monotonic() + TIMEOUT
            while watch.poll() is None and time.monotonic() < deadline:
                value += 1
                self.expect(server.run("set", "k", str(value)), "")
            out, _ = watch.communicate(timeout=TIMEOUT)
            lines = out.splitlines()
            self.assertEqual(len(lines), 2, out)
            first = int(lines[0].rpartition('"')[0].rpartition('"')[2])
            self.assertEqual(lines[1], f'k: "{first}" -> "{first + 1}"')

    def test_a_watch_ends_with_its_store(self):
        with Server() as server:
            watch = subprocess.Popen(
                [UNISONO, "store", "watch", "k", "--port", str(server.port)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment(None),
            )
            while "k" not in server.run("list").stdout:
                self.expect(server.run("set", "k", "1"), "")
            server.process.kill()
            _, err = watch.communicate(timeout=TIMEOUT)
            self.assertEqual(watch.returncode, 1)
            self.assertIn(f"127.0.0.1:{server.port}", err)

    def test_the_secret_is_wanted(self):
        with Server(secret="s", stderr=subprocess.PIPE) as server:
            self.expect(server.run("set", "k", "1", secret="s"), "")
            for secret in (None, "guess"):
                result = server.run("get", "k", secret=secret)
                self.assertEqual(result.returncode, 1)
                self.assertIn("UNISONO_SECRET", result.stderr)

    def test_plain_clients_are_served_where_that_is_allowed(self):
        for options in (["--allow-plain-clients"], ["--plain-clients-from", "127.0.0.0/8"]):
            with Server(*options, secret="s") as server:
                self.expect(server.run("set", "k", "1"), "")
                self.expect(server.run("get", "k", secret="s"), "1\n")

    def test_it_listens_on_just_the_address_that_it_is_given(self):
        with Server("--host", "::1") as server:
            self.assertEqual(server.address, f"[::1]:{server.port}")
            self.expect(server.run("set", "k", "1", "--host", "::1"), "")
            with self.assertRaises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", server.port), timeout=TIMEOUT)

    def test_other_machines_are_served_only_with_a_secret_or_when_asked_for(self):
        refused = run("serve", "--host", "0.0.0.0", "--port", "0")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("UNISONO_SECRET", refused.stderr)
        with Server("--host", "0.0.0.0", "--insecure") as server:
            self.expect(server.run("set", "k", "1"), "")
            elsewhere = ("get", "k", "--host", "0.0.0.0")
            self.assertIn("UNISONO_SECRET", server.run(*elsewhere).stderr)
            self.expect(server.run(*elsewhere, "--insecure"), "1\n")

    def test_tls_takes_a_secret(self):
        with Server() as server:
            get = run("get", "k", "--port", str(server.port), UNISONO_TLS="on")
        serve = run("serve", "--port", "0", UNISONO_TLS="on")
        for result in (get, serve):
            self.assertEqual(result.returncode, 2)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            self.assertIn("UNISONO_TLS=on", result.stderr)
            self.assertIn("set UNISONO_SECRET or UNISONO_SECRET_FILE", result.stderr)

    def test_it_serves_more_clients_than_the_soft_limit_of_open_files(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < 256:
            self.skipTest("takes 256 descriptors")
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
        try:
            server = Server()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        with server, contextlib.ExitStack() as clients:
            ping = struct.pack("<BIBI", 0, 0x3C85F7CE, 13, 7)
            for _ in range(100):
                address = ("127.0.0.1", server.port)
                client = clients.enter_context(socket.create_connection(address, timeout=TIMEOUT))
                client.sendall(ping)
                self.assertEqual(client.recv(4), ping[-4:])

    def test_a_port_in_use_names_its_holder(self):
        with Server() as server:
            second = run("serve", "--port", str(server.port))
            self.assertEqual(second.returncode, 1)
            self.assertIn(str(server.port), second.stderr)
            self.assertIn(f"process {server.process.pid}", second.stderr)

    def test_output_that_goes_nowhere_is_an_error(self):
        with Server() as server, open("/dev/full", "w") as full:
            self.expect(server.run("set", "k", "1"), "")
            for command in (["get", "k"], ["list"]):
                done = subprocess.run(
                    [UNISONO, "store", *command, "--port", str(server.port)],
                    stdout=full,
                    stderr=subprocess.PIPE,
                    text=True,
                    timeout=TIMEOUT,
                    env=environment(None),
                )
                self.assertEqual(done.returncode, 1)
                self.assertIn("can't write to stdout: No space left", done.stderr)

    def test_signals_end_the_server_in_good_order(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = Server()
            self.assertEqual(server.stop(number), 0)

    def test_wrong_usage(self):
        for arguments, what in (
            ([], "subcommand"),
            (["get"], "key"),
            (["set", "k"], "value"),
            (["serve", "--port", "70000"], "70000 not in range 0 to 65535"),
            (["get", "k", "--timeout", "0"], "0 not in range 0.001"),
            (["steal"], "no command unisono store steal; there are serve"),
            (["liist"], "did you mean list?"),
        ):
            result = run(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn("error", result.stderr)
            self.assertIn(what, result.stderr)
        network = run("serve", "--port", "0", "--plain-clients-from", "10.1.2.3/8")
        self.assertEqual(network.returncode, 2)
        self.assertIn("10.1.2.3/8", network.stderr)


if __name__ == "__main__":
    unittest.main()
