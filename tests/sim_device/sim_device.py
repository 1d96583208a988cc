"""The simulated devices "sim:0" to "sim:3" in Python: load(path of libsim_device.so)."""

import ctypes
import types

import torch


class SimDevice:
    """The functions of sim_device.h. Made by load()."""

    def __init__(self, library):
        self._library = library
        for name in ("sim_take_races", "sim_take_errors"):
            getattr(library, name).restype = ctypes.c_char_p

    def device_count(self):
        return self._library.sim_device_count()

    def synchronize_all(self):
        self._library.sim_synchronize_all()

    def set_delays(self, enabled):
        self._library.sim_set_delays(ctypes.c_bool(enabled))

    def take_races(self):
        """Returns the texts of the races that the checker found since the last call."""
        return self._library.sim_take_races().decode().splitlines()

    def take_errors(self):
        """Returns the texts of the tasks' errors that no call has thrown."""
        return self._library.sim_take_errors().decode().splitlines()


def _module(sim):
    """Returns the module torch.sim, which torch asks for the devices and their generators."""
    module = types.ModuleType("torch.sim")
    module.is_available = lambda: True
    module.is_initialized = lambda: True
    module.device_count = sim.device_count
    module.current_device = lambda: torch.accelerator.current_device_index()
    module._is_in_bad_fork = lambda: False
    # torch.manual_seed() has already seeded the devices' generators in C++.
    module.manual_seed_all = lambda seed: None
    return module


def load(path):
    """Registers the devices with torch. Only once in a process, before another accelerator."""
    library = ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
    library.sim_install()
    sim = SimDevice(library)
    torch._register_device_module("sim", _module(sim))
    torch.utils.generate_methods_for_privateuse1_backend()
    return sim
