#pragma once
// Which of this host's addresses its peers should use. Addresses are numeric text: names need not
// resolve.

#include <string>
#include <vector>

namespace ration {

/// Equal in two processes that reach each other over loopback: of one host and one network
/// namespace.
std::string network_id();

/// Whether this host has a network interface of that name.
bool is_interface(const std::string& name);

/// The address of the interface. Throws InvalidArgument where it has none, or does not exist.
std::string address_of_interface(const std::string& name);

/// The address from which this host sends to `host` (a name or an address). Throws InvalidArgument
/// where there is no way to it.
std::string address_towards(const std::string& host);

/// Of the default route, else of the first interface that is up; empty where there is only
/// loopback.
std::string default_address();

/// IPv4 addresses at which this host can be reached; loopback last, for ranks of a host without a
/// network.
std::vector<std::string> reachable_addresses();

bool is_loopback(const std::string& address);

}  // namespace ration
