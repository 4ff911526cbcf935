#pragma once
// Messages by gloo: processes without MPI, over TCP.

#include <memory>
#include <string>

#include "comm/messages.hpp"
#include "control/control.hpp"

namespace ration {

/// Connects every rank of `control`, which is the whole job, with every other. Collective. The
/// network is that of RATION_INTERFACE, else of `interface_or_host` (a network interface of this
/// host, or a host that is reached over it, such as rank 0's), else the one over which rank 0 is
/// reached; loopback where all ranks are on one host and no interface was named. Every rank throws
/// InvalidArgument where one of them has no such network, CommunicationError where ranks cannot
/// connect, and what `control` throws.
std::shared_ptr<Messages> make_gloo(Control& control, const std::string& interface_or_host = "");

}  // namespace ration
