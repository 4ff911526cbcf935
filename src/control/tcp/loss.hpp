#pragma once
// A rank that is lost, in words.

#include "control/tcp/connection.hpp"
#include "control/tcp/protocol.hpp"
#include "core/failure.hpp"

namespace ration::tcp {

/// It has said nothing for too long.
Failure silent(int rank, const Process& process, const Connection& connection);

/// Its connection has ended before it should.
Failure lost(int rank, const Process& process, const Connection& connection,
             const Connection::End& end);

}  // namespace ration::tcp
