#!/usr/bin/env python3
"""The simulated devices in Python: test_sim_device.py LIBRARY."""

import sys
import unittest

import sim_device
import torch


def train(device):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    net.to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    x = torch.randn(4, 8).to(device)
    for _ in range(5):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    return [parameter.detach().cpu() for parameter in net.parameters()]


class SimDevice(unittest.TestCase):
    def tearDown(self):
        SIM.synchronize_all()
        self.assertEqual(SIM.take_errors(), [])
        self.assertEqual(SIM.take_races(), [])

    def test_is_the_accelerator(self):
        self.assertEqual(torch.accelerator.current_accelerator().type, "sim")
        self.assertEqual(torch.accelerator.device_count(), SIM.device_count())

    def test_training_has_the_bits_of_the_cpu(self):
        for cpu, sim in zip(train("cpu"), train("sim:1"), strict=True):
            self.assertTrue(torch.equal(cpu, sim))

    def test_an_event_orders_two_streams(self):
        side = torch.Stream(device="sim:0")
        event = torch.Event(device="sim:0")
        with side:
            y = torch.ones(3, device="sim:0") * 2
            event.record(side)
        torch.accelerator.current_stream(0).wait_event(event)
        self.assertEqual(y.cpu().tolist(), [2, 2, 2])

    def test_a_missing_event_is_reported(self):
        with torch.Stream(device="sim:0"):
            y = torch.ones(3, device="sim:0") * 2
        _ = y + 1
        del y  # A second race: its stream does not wait either.
        self.assertIn("aten::add", "".join(SIM.take_races()))

    def test_an_error_of_a_task_is_reported(self):
        x = torch.ones(3, device="sim:2")
        _ = x.index_select(0, torch.tensor([9]).to("sim:2"))
        SIM.synchronize_all()
        self.assertIn("out of range", "".join(SIM.take_errors()))


if __name__ == "__main__":
    SIM = sim_device.load(sys.argv.pop(1))
    torch.set_num_threads(1)
    unittest.main()
