#pragma once

namespace unisono {

/// What it costs to pass data between ranks, in seconds. The defaults are those of two cores of a
/// server and of a 10 Gbit/s network.
struct LinkCosts {
  double session = 0.4e-6;      ///< Until all ranks of a node know that all have come.
  double local_byte = 0.1e-9;   ///< Reading a byte that a rank of the node has written.
  double latency = 25e-6;       ///< Of a message between nodes.
  double message = 3e-6;        ///< What each further message beside the first adds.
  double remote_byte = 0.8e-9;  ///< Sending a byte to another node, and receiving one meanwhile.
};

}  // namespace unisono
