"""Random operations of four processes at once, PyTorch's client among them, against a reference."""

import random
import threading
import unittest
from collections import deque

import torch.distributed as dist
from peers import OurClient, OurServer

N_OPERATIONS = 10_000
N_SHARED = 2_000
N_CLIENTS = 4


class Ours:
    """Calls of store_peer's client, with texts as bytes."""

    def __init__(self, client):
        self.client = client

    def ok(self, *words):
        answer = self.client.call(*words)
        assert answer == "ok", answer

    def set(self, key, value):
        self.ok("set", key, value)

    def append(self, key, value):
        self.ok("append", key, value)

    def multi_set(self, keys, values):
        self.ok("multi_set", *(word for pair in zip(keys, values, strict=True) for word in pair))

    def get(self, key):
        return self.client.text("get", 60000, key)

    def multi_get(self, keys):
        return self.client.texts("multi_get", 60000, *keys)

    def add(self, key, delta):
        return int(self.client.call("add", key, delta))

    def check(self, keys):
        return self.client.call("check", *keys) == "true"

    def delete_key(self, key):
        return self.client.call("delete_key", key) == "true"

    def compare_set(self, key, expected, desired):
        return self.client.text("compare_set", key, expected, desired)

    def num_keys(self):
        return int(self.client.call("num_keys"))

    def list_keys(self):
        return {bytes.fromhex(word[1:]).decode() for word in self.client.call("list_keys").split()}

    def queue_push(self, key, value):
        self.ok("queue_push", key, value)

    def queue_len(self, key):
        return int(self.client.call("queue_len", key))

    def try_queue_pop(self, key):
        answer = self.client.call("try_queue_pop", key)
        return None if answer == "none" else bytes.fromhex(answer[1:])


class Torchs:
    """PyTorch's client, with the calls of Ours."""

    def __init__(self, store):
        self.store = store

    def __getattr__(self, name):
        return getattr(self.store, name)

    def list_keys(self):
        return set(self.store.list_keys())

    def try_queue_pop(self, key):
        try:
            return self.store.queue_pop(key, False)
        except dist.QueueEmptyError:
            return None


class Reference:
    """Keys under a prefix, and what they hold."""

    def __init__(self, test, prefix, seed):
        self.test = test
        self.prefix = prefix
        self.random = random.Random(seed)
        self.values = {}
        self.queues = {f"{prefix}q{n}": deque() for n in range(2)}

    def key(self):
        return f"{self.prefix}k{self.random.randrange(8)}"

    def value(self):
        return self.random.randbytes(self.random.choice((0, 1, 20, 3000)))

    def step(self, store):
        """A random operation: its result must be the reference's."""
        operations = ("set", "append", "multi_set", "add", "delete", "compare_set", "push", "pop")
        looks = ("get", "check", "multi_get", "list", "num_keys")
        getattr(self, "do_" + self.random.choice(operations + looks))(store)

    def equal(self, found, expected):
        self.test.assertEqual(found, expected)

    def do_set(self, store):
        key, value = self.key(), self.value()
        store.set(key, value)
        self.values[key] = value

    def do_append(self, store):
        key, value = self.key(), self.value()
        store.append(key, value)
        self.values[key] = self.values.get(key, b"") + value

    def do_multi_set(self, store):
        keys = [self.key() for _ in range(self.random.randrange(1, 4))]
        values = [self.value() for _ in keys]
        store.multi_set(keys, values)
        self.values.update(zip(keys, values, strict=True))

    def do_add(self, store):
        key, delta = self.prefix + "number", self.random.randrange(-100, 100)
        number = int(self.values.get(key, b"0")) + delta
        self.equal(store.add(key, delta), number)
        self.values[key] = str(number).encode()

    def do_delete(self, store):
        key = self.key()
        self.equal(store.delete_key(key), self.values.pop(key, None) is not None)

    def do_compare_set(self, store):
        key, desired = self.key(), self.value()
        expected = self.random.choice((self.value(), self.values.get(key, b"")))
        if self.values.get(key, b"") == expected and (key in self.values or not expected):
            self.values[key] = desired
        self.equal(store.compare_set(key, expected, desired), self.values.get(key, expected))

    def do_push(self, store):
        key, value = self.random.choice(list(self.queues)), self.value()
        store.queue_push(key, value)
        self.queues[key].append(value)
        self.equal(store.queue_len(key), len(self.queues[key]))

    def do_pop(self, store):
        key = self.random.choice(list(self.queues))
        expected = self.queues[key].popleft() if self.queues[key] else None
        self.equal(store.try_queue_pop(key), expected)

    def do_get(self, store):
        key = self.key()
        self.equal(store.check([key]), key in self.values)
        if key in self.values:
            self.equal(store.get(key), self.values[key])

    def do_check(self, store):
        keys = [self.key(), self.key()]
        self.equal(store.check(keys), all(key in self.values for key in keys))

    def do_multi_get(self, store):
        if self.values:
            keys = self.random.choices(list(self.values), k=5)
            self.equal(store.multi_get(keys), [self.values[key] for key in keys])

    def do_list(self, store):
        own = {key for key in store.list_keys() if key.startswith(self.prefix)}
        self.equal(own, set(self.values))

    def do_num_keys(self, store):
        self.test.assertGreaterEqual(store.num_keys(), len(self.values))


class RandomOperations(unittest.TestCase):
    """In a process each, driven by a thread each; PyTorch's client is in this one."""

    def clients(self, server, secret):
        ours = [
            Ours(self.enterContext(OurClient(server.port, secret))) for _ in range(N_CLIENTS - 1)
        ]
        return [*ours, Torchs(server.client())]

    def at_once(self, clients, function):
        """function(index, client) for each, at the same time; what they return."""
        results = [None] * len(clients)

        def run(index):
            results[index] = function(index, clients[index])

        threads = [threading.Thread(target=run, args=(n,)) for n in range(len(clients))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertNotIn(None, results)
        return results

    def for_each_kind(self, check):
        for secret in ("", "known"):
            with self.subTest(secret=secret), OurServer(secret) as server:
                check(self.clients(server, secret))

    def test_on_keys_of_their_own(self):
        self.for_each_kind(self.expect_own_keys)

    def test_on_shared_keys(self):
        self.for_each_kind(self.expect_shared_keys)

    def test_in_turns_on_the_same_keys(self):
        self.for_each_kind(self.expect_turns)

    def expect_own_keys(self, clients):
        def run(index, store):
            reference = Reference(self, f"{index}/", seed=index)
            for _ in range(N_OPERATIONS // N_CLIENTS):
                reference.step(store)
            store.num_keys()  # What has no answer is done by then.
            return reference

        references = self.at_once(clients, run)
        for store in clients:
            values = {key: value for each in references for key, value in each.values.items()}
            self.assertEqual(store.num_keys(), len(values))
            self.assertEqual(store.list_keys(), set(values))
            self.assertEqual(store.multi_get(list(values)), list(values.values()))

    def expect_shared_keys(self, clients):
        def run(index, store):
            generator = random.Random(index)
            total, popped = 0, []
            for n in range(N_SHARED // N_CLIENTS):
                delta = generator.randrange(-1000, 1000)
                store.add("sum", delta)
                total += delta
                store.append("log", f"{index}:{n};")
                store.queue_push("q", f"{index}:{n}")
                if generator.randrange(2) and (value := store.try_queue_pop("q")):
                    popped.append(value)
                self.count_up(store, f"{index}:{n}")
            store.num_keys()
            return total, popped

        results = self.at_once(clients, run)
        store = clients[0]
        steps = range(N_SHARED // N_CLIENTS)
        everything = [f"{index}:{n}".encode() for index in range(N_CLIENTS) for n in steps]
        self.assertEqual(int(store.get("sum")), sum(total for total, _ in results))
        self.assertEqual(int(store.get("count").split()[0]), len(everything))
        log = store.get("log").split(b";")[:-1]
        self.assertEqual(sorted(log), sorted(everything))
        self.expect_each_ones_order(log)
        rest = [store.try_queue_pop("q") for _ in range(store.queue_len("q"))]
        self.assertEqual(sorted(sum((popped for _, popped in results), rest)), sorted(everything))
        for values in (rest, *(popped for _, popped in results)):
            self.expect_each_ones_order(values)

    def count_up(self, store, name):
        """By compare_set alone; the name tells this value from what others set."""
        is_done = False
        while not is_done:
            before = store.get("count") if store.check(["count"]) else b""
            after = f"{int(before.split()[0] if before else 0) + 1} {name}".encode()
            is_done = store.compare_set("count", before, after) == after

    def expect_each_ones_order(self, values):
        for index in range(N_CLIENTS):
            steps = [int(v.split(b":")[1]) for v in values if v.startswith(f"{index}:".encode())]
            self.assertEqual(steps, sorted(steps))

    def expect_turns(self, clients):
        reference = Reference(self, "", seed=7)
        for _ in range(N_OPERATIONS):
            store = reference.random.choice(clients)
            reference.step(store)
            # No other keys exist, and a request without a reply is complete before the next
            # client's turn.
            self.assertEqual(store.num_keys(), len(reference.values))


if __name__ == "__main__":
    unittest.main(verbosity=2)
